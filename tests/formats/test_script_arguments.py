"""Arguments of scripts beside TrainingArguments: what is trained, in how many bits the base lies, how long sequences are."""

from pathlib import Path
from typing import Any

import pytest

from strategist import api
from strategist.contract.estimate import Fit
from strategist.contract.review import Review
from strategist.formats.completed_config import GivenValues

TRAIN = "torchrun train.py --model_name_or_path $MODEL --per_device_train_batch_size 1 --bf16 True "


def checked(folder: Path, flags: str, gpus: str = "1x24GB", **given: Any) -> Review:
    path = folder / "train.sh"
    path.write_text(TRAIN + flags + "\n", encoding="utf-8")
    return api.import_plan(path, GivenValues(gpus=gpus, model="8b", workload=given, settings={}))


def trained(review: Review) -> tuple[str, int, int]:
    assert review.plan is not None
    workload = review.plan.workload
    return workload.train, workload.lora_rank if workload.train != "full" else 0, workload.seq_len


def entries(review: Review, code: str) -> list[str]:
    return [item.entry for item in review.findings if item.code == code]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--use_lora --q_lora False --model_max_length 512", ("lora", 16, 512)),
        ("--use_lora --q_lora --max_length 512", ("qlora", 16, 512)),
        ("--lora_enable True --lora_r 64 --bits 4 --model_max_length 512", ("qlora", 64, 512)),
        ("--use_peft_lora True --use_4bit_quantization True --max_seq_len 512", ("qlora", 16, 512)),
        ("--lora_rank 8 --load_in_kbits 16 --block_size 512", ("lora", 8, 512)),
        ("--train_mode qlora --lora_rank 8 --max_seq_length 512", ("qlora", 8, 512)),
        ("--lora_dim 128 --max_seq_len 512", ("lora", 128, 512)),
        ("--low_rank_training True --model_max_length 512", ("lora", 16, 512)),
        ("--use_qlora 1 --use_lora 1 --block_size 512", ("qlora", 16, 512)),
        ("--use_peft False --lora_r 8 --max_length 512", ("full", 0, 512)),
    ],
)
def test_words_of_scripts_are_understood(tmp_path: Path, flags: str, expected: tuple[str, int, int]) -> None:
    assert trained(checked(tmp_path, flags)) == expected


def test_a_base_that_the_script_may_quantize_leaves_a_verdict_open(tmp_path: Path) -> None:
    found = checked(tmp_path, "--lora_rank 8 --max_length 512 --gradient_checkpointing", "1x16GB")
    assert "lora_rank" in entries(found, "FMT-011")
    assert found.fit is Fit.UNKNOWN
    assert "lora_rank" not in entries(checked(tmp_path, "--lora_rank 8", train="qlora"), "FMT-011")
    assert checked(tmp_path, "--use_peft --lora_r 8", seq_len=512).uncertainties == ()


def test_a_name_with_adapter_words_leaves_full_training_open(tmp_path: Path) -> None:
    found = checked(tmp_path, "--my_adapter_kind prefix --gradient_checkpointing")
    assert found.fit is Fit.UNKNOWN
    assert entries(found, "FMT-011") == ["my_adapter_kind"]
    assert checked(tmp_path, "--my_adapter_kind False", seq_len=512, train="full").fit is Fit.TOO_LARGE


def test_modules_that_are_trained_whole_are_reported(tmp_path: Path) -> None:
    assert "lora_modules_to_save" in entries(checked(tmp_path, "--lora_rank 8 --modules_to_save embed_tokens"), "FMT-002")


def test_a_given_model_settles_a_name_that_only_a_run_knows(tmp_path: Path) -> None:
    assert entries(checked(tmp_path, "--use_peft --lora_r 8"), "FMT-011") == []


def test_texts_may_be_shorter_than_the_length_that_is_stated(tmp_path: Path) -> None:
    flags = "--use_peft --lora_r 8 --max_length 32768"
    assert checked(tmp_path, flags).fit is Fit.UNKNOWN
    assert checked(tmp_path, flags, seq_len=32768).fit is Fit.TOO_LARGE


SCRIPT = "torchrun train.py --model_name_or_path $MODEL --per_device_train_batch_size 1 --max_length 512 "


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("--dtype bfloat16 --bf16", "bf16-true"),
        ("--torch_dtype torch.bfloat16", "bf16-true"),
        ("--dtype float32 --bf16", "bf16"),
        ("--dtype bfloat16 --bf16 --fsdp full_shard", "bf16"),
        ("--dtype bfloat16 --fsdp full_shard", "bf16-true"),
        ("--dtype bfloat16 --bf16 --deepspeed ds.json", "bf16"),
        ("--dtype bfloat16 --use_peft", "bf16"),
        ("--dtype bfloat16 --fp16", "fp16"),
    ],
)
def test_weights_that_are_loaded_in_bf16_stay_so_unless_the_trainer_copies_them(tmp_path: Path, flags: str, precision: str) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}', encoding="utf-8")
    (tmp_path / "train.sh").write_text(SCRIPT + flags + "\n", encoding="utf-8")
    found = api.import_plan(tmp_path / "train.sh", GivenValues(gpus="4xH100", model="1b"))
    assert found.plan is not None
    assert found.plan.workload.precision == precision


def test_weights_in_the_type_in_which_they_are_stored_leave_a_verdict_open(tmp_path: Path) -> None:
    flags = "--dtype auto --use_peft False --max_length 512 --gradient_checkpointing"
    found = checked(tmp_path, flags, "1xH100")
    assert found.fit is Fit.UNKNOWN
    assert "dtype" in entries(found, "FMT-002")
    assert checked(tmp_path, flags.replace("auto", "float32"), "1xH100", seq_len=512).fit is Fit.TOO_LARGE
    assert "dtype" not in entries(checked(tmp_path, flags + " --fsdp full_shard", "8xH100"), "FMT-002")


def test_an_image_encoder_leaves_a_fitting_verdict_open(tmp_path: Path) -> None:
    flags = "--use_peft False --model_max_length 512 --gradient_checkpointing --fsdp full_shard --vision_tower siglip"
    found = checked(tmp_path, flags, "8xH100")
    assert found.fit is Fit.UNKNOWN
    assert found.uncertainties[0].startswith("vision_tower: the image encoder is not priced")
    assert checked(tmp_path, flags.replace("siglip", "none"), "8xH100").fit is Fit.FITS
