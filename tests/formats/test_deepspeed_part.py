"""DeepSpeed's configuration has the same meaning in every framework's file that contains or names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from strategist import api
from strategist.contract.plan import Plan
from strategist.formats.completed_config import GivenValues
from strategist.formats.config_reader import read
from strategist.formats.parsed_config import ParsedConfig

CONFIG = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"}, "zro": 1}
HOLDERS = {
    "hf-trainer": ("a.yaml", "per_device_train_batch_size: 1\nbf16: true\ndeepspeed: {}\n"),
    "llama-factory": ("l.yaml", "model_name_or_path: a/b\nstage: pt\nfinetuning_type: full\nbf16: true\ndeepspeed: {}\n"),
    "axolotl": ("x.yaml", "base_model: a/b\nsequence_len: 512\nsample_packing: true\nbf16: true\ndeepspeed: {}\n"),
    "accelerate": (
        "c.yaml",
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: {}\n",
    ),
    "lightning": (
        "t.py",
        "import lightning as L\nL.Trainer(precision='bf16-mixed', strategy=DeepSpeedStrategy(config={}))\nLoader(batch_size=1)\n",
    ),
}


@pytest.fixture(params=HOLDERS)
def holder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def parsed(folder: Path, holder: str, value: str) -> ParsedConfig:
    name, text = HOLDERS[holder]
    quoted = repr(value) if holder == "lightning" and not value.startswith("{") else value
    (folder / name).write_text(text.replace("{}", quoted), encoding="utf-8")
    _, chosen, found = read(folder / name)
    assert chosen.name == holder
    return found


def sharding(found: ParsedConfig) -> dict[str, Any]:
    names = ("reshard_after_forward", "offload", "no_sync", "reduce_dtype")
    return {name: found.settings[name] for name in names}


def deepspeed_file(folder: Path, **more: Any) -> str:
    (folder / "ds.json").write_text(json.dumps(CONFIG | more), encoding="utf-8")
    return "ds.json"


def test_a_referenced_deepspeed_file_is_read(tmp_path: Path, holder: str) -> None:
    found = parsed(tmp_path, holder, deepspeed_file(tmp_path))
    expected = {"reshard_after_forward": True, "offload": "optimizer", "no_sync": False, "reduce_dtype": "bf16"}
    assert sharding(found) == expected
    assert found.spare == "dp_shard"
    assert [(item.code, "zro" in item.message) for item in found.findings if item.code == "FMT-001"] == [("FMT-001", True)]


def test_the_communication_dtype_is_read(tmp_path: Path, holder: str) -> None:
    types = {"communication_data_type": "fp32", "data_types": {"grad_accum_dtype": "fp32"}}
    assert parsed(tmp_path, holder, deepspeed_file(tmp_path, **types)).settings["reduce_dtype"] == "fp32"


def test_stage_0_reduces_in_the_compute_dtype(tmp_path: Path, holder: str) -> None:
    found = parsed(tmp_path, holder, deepspeed_file(tmp_path, zero_optimization={"stage": 0}))
    assert (found.spare, found.settings["reduce_dtype"], found.workload["precision"]) == ("dp_replicate", "bf16", "bf16")


@pytest.mark.parametrize(
    ("name", "reshards", "offload", "words"),
    [
        ("examples/deepspeed/ds_z2_config.json", False, "none", "the shipped file of this name is assumed"),
        ("deepspeed_configs/zero3_bf16_cpuoffload_all.json", True, "all", "the shipped file of this name is assumed"),
        ("ds_z3_config.json", True, "none", "ZeRO-3 is assumed"),
        ("zero3_offload.json", True, "all", "ZeRO-3 with offload is assumed"),
        ("mine.json", False, "none", "ZeRO-2 is assumed"),
    ],
)
def test_a_missing_deepspeed_file_is_known_only_if_a_trainer_ships_it(
    tmp_path: Path, holder: str, name: str, reshards: bool, offload: str, words: str
) -> None:
    found = parsed(tmp_path, holder, name)
    assert (found.settings["reshard_after_forward"], found.settings["offload"]) == (reshards, offload)
    findings = [item for item in found.findings if f"{name} is not found" in item.message]
    code = "FMT-003" if "shipped" in words else "FMT-011"  # which leaves open whether it fits
    assert [(item.code, words in item.message) for item in findings] == [(code, True)]
    assert findings[0].line is not None


@pytest.mark.parametrize("holder", [name for name in HOLDERS if name != "accelerate"])
def test_an_inline_deepspeed_section_is_read(tmp_path: Path, holder: str) -> None:
    found = parsed(tmp_path, holder, json.dumps(CONFIG).replace("true", "True"))
    assert sharding(found)["offload"] == "optimizer"
    assert [item.line is not None for item in found.findings if item.code == "FMT-001"] == [True]
    assert parsed(tmp_path, holder, "{}").spare == "dp_replicate"


def plan_with(folder: Path, zero: dict[str, Any], *more: str) -> Plan:
    """Plan of a trainer's file with this section of DeepSpeed, on 8 devices."""
    lines = ["per_device_train_batch_size: 1", "bf16: true", "max_length: 512", "gradient_checkpointing: true", *more]
    (folder / "a.yaml").write_text("\n".join([*lines, f"deepspeed: {json.dumps({'zero_optimization': zero})}"]), encoding="utf-8")
    plan = api.import_plan(folder / "a.yaml", GivenValues(gpus="8xH100", model="8b", workload={}, settings={})).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(("stage", "share"), [(1, 1.0), (2, 1.0), (3, 1 / 8)])
def test_a_frozen_base_lies_whole_on_each_rank_below_stage_3(tmp_path: Path, stage: int, share: float) -> None:
    plan = plan_with(tmp_path, {"stage": stage}, "use_peft: true")
    assert plan.estimate.memory.needed["parameters"] == pytest.approx(share * 2 * plan.model.parameters, rel=0.02)


def test_states_under_another_trainer_are_those_of_deepspeed(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, {"stage": 2})
    needed, shard = plan.estimate.memory.needed, plan.model.parameters / 8
    assert plan.stack == "deepspeed"
    assert needed["gradients"] == pytest.approx((2 + 2 + 4) * shard, rel=0.01)  # in half precision, in one tensor, and that in fp32
    assert needed["unsharded_parameters"] == pytest.approx(2 * plan.model.parameters, rel=0.1)


@pytest.mark.parametrize(("stage", "default"), [(2, False), (3, True)])
def test_reductions_are_hidden_as_the_configuration_says(tmp_path: Path, stage: int, default: bool) -> None:
    """By default only in stage 3."""
    stated = {value: plan_with(tmp_path, {"stage": stage, "overlap_comm": value}).estimate.time for value in (False, True)}
    assert stated[False].dp_communication > 1.2 * stated[True].dp_communication
    assert plan_with(tmp_path, {"stage": stage}).estimate.time == stated[default]


def test_every_frameworks_file_states_the_overlap(tmp_path: Path, holder: str) -> None:
    found = parsed(tmp_path, holder, deepspeed_file(tmp_path, zero_optimization={"stage": 3, "overlap_comm": False}))
    assert found.stack == {"name": "deepspeed", "hides_reductions": False, "hides_resharded_reductions": False}


def test_a_quantized_base_is_not_priced_in_16_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "per_device_train_batch_size: 1\nbf16: true\nuse_peft: true\nload_in_4bit: true\nmax_length: 512\n"
        "gradient_checkpointing: true\ndeepspeed: {zero_optimization: {stage: 2}}\n",
        encoding="utf-8",
    )
    plan = api.import_plan(path, GivenValues(gpus="2x24GB", model="8b", workload={}, settings={})).plan
    assert plan is not None
    assert plan.estimate.memory.needed["unsharded_parameters"] == 0
    assert plan.estimate.memory.needed["parameters"] < plan.model.parameters


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--zero_stage 3 --offload --deepspeed", (True, "all", [])),
        ("--zero_stage 1 --deepspeed", (False, "none", [])),
        ("--deepspeed", (False, "none", ["deepspeed"])),
    ],
)
def test_a_flag_without_a_file_is_read_with_the_flags_of_deepspeed_chat(
    tmp_path: Path, flags: str, expected: tuple[bool, str, list[str]]
) -> None:
    (tmp_path / "run.sh").write_text(f"deepspeed main.py --per_device_train_batch_size 4 --lora_dim 0 {flags}\n", encoding="utf-8")
    _, _, found = read(tmp_path / "run.sh")
    unread = [item.entry for item in found.findings if item.code == "FMT-011"]
    assert (found.settings["reshard_after_forward"], found.settings["offload"], unread) == expected
