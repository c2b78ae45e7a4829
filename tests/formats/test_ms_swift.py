"""ms-swift's commands and YAML are read, with its names and defaults (main of 2026)."""

from pathlib import Path
from typing import Any

import pytest

from strategist import api
from strategist.contract.review import Review
from strategist.contract.settings import value_of
from strategist.errors import FileError
from strategist.formats.catalog import recognise
from strategist.formats.completed_config import GivenValues
from strategist.formats.source import parse

COMMAND = "NPROC_PER_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \\\nswift sft \\\n  --model qwen2.5-7b \\\n  "


def checked(folder: Path, flags: str, command: str = COMMAND) -> Review:
    path = folder / "train.sh"
    path.write_text(f"{command}{flags}\n", encoding="utf-8")
    return api.import_plan(path, GivenValues(gpus="8xH100"))


def settings(review: Review, *names: str) -> list[Any]:
    return [value_of(review.plan.candidate, name) for name in names]


def test_a_command_is_read_with_the_systems_own_defaults(tmp_path: Path) -> None:
    """LoRA of rank 8 in bf16, one sequence per rank, recomputed layers, DDP."""
    review = checked(tmp_path, "--dataset a --max_length 2048 --gradient_accumulation_steps 16 --target_modules all-linear")
    assert (review.format, review.plan.model.name) == ("ms-swift", "qwen2.5-7b")
    workload = review.plan.workload
    assert (workload.train, workload.lora_rank, workload.precision, workload.seq_len) == ("lora", 8, "bf16", 2048)
    assert workload.global_batch == 128
    assert settings(review, "micro_batch", "recompute", "dp_shard", "dp_replicate") == [1, "full", 1, 8]
    assert not [item for item in review.findings if item.code != "FMT-003"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--train_type full --deepspeed zero3", ("full", "bf16", 8, True, "none")),
        ("--tuner_type full --deepspeed zero2_offload", ("full", "bf16", 8, False, "optimizer")),
        ("--tuner_type full --fsdp fsdp2", ("full", "bf16", 8, True, "none")),
        ("--tuner_type full", ("full", "bf16-true", 1, True, "none")),
        ("--quant_bits 4 --quant_method bnb", ("qlora", "bf16", 1, True, "none")),
        ("--torch_dtype float16", ("lora", "fp16", 1, True, "none")),
    ],
)
def test_arguments_set_training_precision_and_sharding(tmp_path: Path, flags: str, expected: tuple[Any, ...]) -> None:
    review = checked(tmp_path, f"--max_length 2048 --gradient_accumulation_steps 1 {flags}")
    workload = review.plan.workload
    assert (workload.train, workload.precision, *settings(review, "dp_shard", "reshard_after_forward", "offload")) == expected


def test_accumulation_that_is_not_stated_is_assumed(tmp_path: Path) -> None:
    """ms-swift chooses it by the number of devices (trainers/arguments.py: 16 sequences per step)."""
    assert any("state global_batch" in item.message for item in checked(tmp_path, "--max_length 2048").findings)


def test_a_file_that_the_command_names_is_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"names sft\.yaml, which is not found"):
        checked(tmp_path, "", "swift sft sft.yaml")
    text = "model: qwen2.5-7b\ntuner_type: full\nmax_length: 1024\nper_device_train_batch_size: 4\ndeepspeed: zero1\n"
    (tmp_path / "sft.yaml").write_text(text, encoding="utf-8")
    review = checked(tmp_path, "--max_length 512", "swift sft sft.yaml ")
    assert settings(review, "micro_batch", "reshard_after_forward") == [4, False]
    assert (review.plan.workload.seq_len, review.plan.workload.train) == (512, "full")
    assert recognise(parse(text, "sft.yaml")).name == "ms-swift"


def test_what_has_no_price_is_reported(tmp_path: Path) -> None:
    review = checked(tmp_path, "--tuner_type adalora --target_modules q_proj --freeze_llm true --max_length 512")
    assert {"finetuning_type", "lora_target", "unfrozen_parameters"} <= {item.entry for item in review.findings}


def test_a_commented_command_is_none() -> None:
    script = "# swift sft --model m\ntorchrun train.py --per_device_train_batch_size 1\n"
    assert recognise(parse(script, "train.sh")).name == "hf-trainer"
