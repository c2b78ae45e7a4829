"""torchtune's configurations are read: recipes of full fine-tuning, LoRA and QLoRA, as in its repository of 2025."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from strategist import api
from strategist.contract.estimate import Fit
from strategist.contract.review import Review
from strategist.contract.settings import value_of
from strategist.errors import FileError, InputError
from strategist.formats.completed_config import GivenValues

FULL: dict[str, Any] = {
    "output_dir": "/tmp/out", "seed": None, "shuffle": True, "epochs": 1, "device": "cuda", "dtype": "bf16",
    "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "path": "t.model", "max_seq_len": 4096},
    "dataset": {"_component_": "torchtune.datasets.alpaca_cleaned_dataset", "packed": True},
    "model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"},
    "optimizer": {"_component_": "torch.optim.AdamW", "lr": 2e-5, "fused": True},
    "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
    "batch_size": 2, "batch_size_val": "${batch_size}", "gradient_accumulation_steps": 4,
    "enable_activation_checkpointing": True, "enable_activation_offloading": False, "compile": False,
    "optimizer_in_bwd": False,
}  # fmt: skip
LORA = {
    "model": {
        "_component_": "torchtune.models.qwen2_5.lora_qwen2_5_7b_instruct", "lora_rank": 64, "apply_lora_to_mlp": True,
        "lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"],
    },
}  # fmt: skip


def checked(folder: Path, gpus: str = "8xH100", **changes: Any) -> Review:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**FULL, **changes}), encoding="utf-8")
    return api.import_plan(path, GivenValues(gpus=gpus))


def settings(review: Review, *names: str) -> list[Any]:
    return [value_of(review.plan.candidate, name) for name in names]


def test_a_recipe_of_full_fine_tuning_is_read(tmp_path: Path) -> None:
    review = checked(tmp_path)
    assert (review.format, review.plan.model.name, review.findings) == ("torchtune", "llama3-8b", ())
    names = (
        "dp_shard",
        "micro_batch",
        "recompute",
        "reshard_after_forward",
        "offload",
        "no_sync",
        "optimizer_kernel",
        "reduce_dtype",
    )
    assert settings(review, *names) == [8, 2, "full", True, "none", False, "fused", "bf16"]
    workload = review.plan.workload
    assert (workload.train, workload.precision, workload.seq_len, workload.global_batch) == ("full", "bf16-true", 4096, 64)


def test_adapters_and_their_model_are_read_from_the_components_name(tmp_path: Path) -> None:
    review = checked(tmp_path, **LORA)
    assert (review.plan.model.name, review.plan.workload.train, review.plan.workload.lora_rank) == ("qwen2.5-7b", "lora", 64)
    model = {"_component_": "torchtune.models.llama3_3.qlora_llama3_3_70b", "lora_rank": 16}
    review = checked(tmp_path, model=model)
    assert (review.plan.model.name, review.plan.workload.train, review.plan.workload.lora_rank) == ("llama3-70b", "qlora", 16)
    assert [item.entry for item in review.findings] == ["model.lora_attn_modules"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tensor_parallel_dim": 4, "data_parallel_shard_dim": -1}, {"tp": 4, "dp_shard": 2}),
        ({"data_parallel_replicate_dim": 2, "data_parallel_shard_dim": 4}, {"dp_replicate": 2, "dp_shard": 4}),
        ({"context_parallel_dim": 2}, {"cp": 2, "cp_rotate": "allgather", "dp_shard": 4}),
        ({"fsdp_cpu_offload": True, "fsdp_reshard_after_forward": False}, {"offload": "all", "reshard_after_forward": False}),
        ({"enable_activation_offloading": True, "compile": True}, {"activation_offload": True, "compile": True}),
        ({"enable_activation_checkpointing": False}, {"recompute": "none"}),
        (
            {"enable_activation_checkpointing": False, "ac_mode": "selective", "ac_option": 2}, {"recompute": "every_second_layer"},
        ),
        ({"enable_activation_checkpointing": False, "ac_mode": "selective", "ac_option": "op"}, {"recompute": "selective"}),
        ({"optimizer_in_bwd": True, "gradient_accumulation_steps": 1}, {"optimizer_in_backward": True}),
    ],
)  # fmt: skip
def test_entries_of_a_recipe_set_settings(tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    review = checked(tmp_path, **changes)
    assert dict(zip(expected, settings(review, *expected), strict=True)) == expected


def test_a_length_that_the_data_decide_leaves_the_verdict_open(tmp_path: Path) -> None:
    tokenizer = {**FULL["tokenizer"], "max_seq_len": None}
    assert checked(tmp_path, "4x40GB").fit is Fit.FITS
    review = checked(tmp_path, "4x40GB", tokenizer=tokenizer)
    assert review.fit is Fit.UNKNOWN
    assert review.uncertainties[0].startswith("seq_len 4096 is assumed")


DPO = {"_component_": "torchtune.rlhf.loss.DPOLoss"}


def test_what_has_no_price_is_reported(tmp_path: Path) -> None:
    review = checked(tmp_path, loss=DPO, enable_fp8_training=True)
    assert "enable_fp8_training" in [item.entry for item in review.findings]
    assert any("DPOLoss" in item.message and item.code == "FMT-002" for item in review.findings)
    assert any(text.startswith("reference model could add") for text in checked(tmp_path, "8x24GB", loss=DPO).uncertainties)


def test_recipes_without_an_optimizer_and_unknown_models_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="trains nothing"):
        checked(tmp_path, optimizer=None)
    with pytest.raises(InputError, match=r"the file's model llama3\.2-vision-11b"):
        checked(tmp_path, model={"_component_": "torchtune.models.llama3_2_vision.llama3_2_vision_11b"})


def test_the_format_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is only read; choose one of pytorch"):
        api.export_plan(checked(tmp_path).plan, "torchtune")
