"""DeepSpeed's JSON: exported plans as DeepSpeed reads them, and imports of users' files."""

import json
from pathlib import Path
from typing import Any

import pytest

from formats.described import codes, described, setting
from formats.frameworks import parsed
from formats.names import accepted, listed
from formats.plans import plans
from strategist import api
from strategist.cli.main import main
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist.formats.catalog import find_format
from strategist.formats.completed_config import GivenValues, Setup

HALF = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}


def found_in(folder: Path, config: dict[str, Any] | str, gpus: str = "8xH100", **given: Any) -> Setup:
    path = folder / "ds_config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return described(path, GivenValues(gpus=gpus, model="8b", workload=given, settings={}))


COMMENTED = """{
  // ZeRO, with a comment
  "zero_optimization": {"stage": 3, /* of three */ "stage3_prefetch_bucket_size": 1e7,},
  "train_micro_batch_size_per_gpu": 2, # a device
  "tensorboard": {"output_path": "http://a/b#c"},
  "bf16": {"enabled": true},
  "zero_stge": 1,
}
"""


def test_comments_and_trailing_commas_are_read_like_hjson(tmp_path: Path) -> None:
    """DeepSpeed parses with hjson; positions are those of the file."""
    job = found_in(tmp_path, COMMENTED)
    assert (setting(job, "dp_shard"), setting(job, "micro_batch")) == (8, 2)
    [wrong] = [found for found in job.findings if found.code == "FMT-001"]
    assert (wrong.line, wrong.column) == (7, 3)


@pytest.mark.parametrize(
    "text", [COMMENTED.replace('"train_micro', '"per_device_train_batch_size": 1, "x'), '{"a": 1, // b\n "c"}']
)
def test_comments_in_json_of_other_formats_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is not JSON"):
        found_in(tmp_path, text.replace("zero_optimization", "other"))


def expected_settings(plan: Plan) -> dict[str, Any]:
    """The settings that DeepSpeed must read from a plan's file."""
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    half = workload.precision != "fp32"
    reduced = HALF[workload.precision] if knobs.reduce_dtype == "bf16" else "torch.float32"
    expected = {
        "train_batch_size": workload.global_batch * layout.tp,
        "micro_batch": knobs.micro_batch,
        "accumulation": plan.accumulation,
        "hpz": knobs.reshard_group_size if knobs.reshard_after_forward == "subgroup" else 1,
        "offload_optimizer": "none" if knobs.offload == "none" else "cpu",
        "offload_param": "cpu" if knobs.offload == "all" else "none",
        "bf16": workload.precision == "bf16",
        "fp16": workload.precision == "fp16",
        "optimizer": "SGD" if workload.optimizer == "sgd" else workload.optimizer,
        "tp": layout.tp if layout.tp > 1 else 0,
        "communication_data_type": reduced if half else "None",
        "cpu_checkpointing": knobs.activation_offload,
    }
    if layout.dp_shard > 1:
        expected["stage"] = 3 if knobs.reshard_after_forward else 1 if knobs.no_sync and plan.accumulation > 1 else 2
    if layout.dp_replicate > 1:
        expected["stage"] = 0
    return expected


@pytest.mark.full
def test_deepspeed_reads_exported_plans_correctly(tmp_path: Path) -> None:
    by_ranks: dict[int, list[tuple[Plan, str]]] = {}
    for index, plan in enumerate(plans("deepspeed")):
        path = tmp_path / f"{index}.json"
        path.write_text(find_format("deepspeed").write(plan, {}).files[0].text, encoding="utf-8")
        by_ranks.setdefault(plan.cluster.devices, []).append((plan, str(path)))
    assert len(by_ranks) > 1
    for ranks, group in by_ranks.items():
        for (plan, _), found in zip(group, parsed("deepspeed", ["check", str(ranks), *(path for _, path in group)]), strict=True):
            expected = expected_settings(plan)
            assert {name: found.get(name, found) for name in expected} == expected, plan.candidate


@pytest.mark.full
def test_listed_names_equal_those_that_deepspeed_reads() -> None:
    assert listed("deepspeed") == accepted("deepspeed")


@pytest.mark.full
def test_every_configuration_of_the_package_is_found_in() -> None:
    found = parsed("deepspeed", ["shipped"])
    assert len(found) >= 4
    for path in found:
        assert not codes(api.import_plan(path, GivenValues(gpus="8xH100", model="8b", workload={}, settings={}))).keys() - {
            "FMT-009"
        }


@pytest.mark.full
def test_configurations_with_an_error_are_refused_by_deepspeed_too(tmp_path: Path) -> None:
    refused: list[dict[str, Any]] = [
        {"zero_optimization": {"stage": 3, "mics_shard_size": 8}},
        {"elasticity": {"enabled": False}},
        {"bf16": {"enabled": True}, "fp16": {"enabled": True}},
    ]
    paths = []
    for index, wrong in enumerate(refused):
        config = {"train_micro_batch_size_per_gpu": 1, **wrong}
        assert "FMT-004" in codes(found_in(tmp_path, config)), config
        paths.append(tmp_path / f"{index}.json")
        paths[-1].write_text(json.dumps(config), encoding="utf-8")
    assert all("refused" in found for found in parsed("deepspeed", ["check", "8", *map(str, paths)]))


def test_auto_values_are_reported_as_assumed(tmp_path: Path) -> None:
    """The template of transformers' guide on DeepSpeed, shortened."""
    auto = {"enabled": "auto"}
    zero = {
        "stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "overlap_comm": True, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 1e9,
    }  # fmt: skip
    names = ("gradient_accumulation_steps", "gradient_clipping", "train_batch_size", "train_micro_batch_size_per_gpu")
    config = {"_comment": "ours", "fp16": auto, "bf16": auto, "zero_optimization": zero, **dict.fromkeys(names, "auto")}
    job = found_in(tmp_path, config)
    assert setting(job, "offload") == "optimizer"
    assert setting(job, "reshard_after_forward") is True
    assert setting(job, "dp_shard") == 8
    assumed = [found.message for found in job.findings if found.code == "FMT-003"]
    assert [text.partition(":")[0].removeprefix("the file does not state ") for text in assumed] == [
        "seq_len", "global_batch", "micro_batch", "precision", "optimizer", "recompute", "train",
    ]  # fmt: skip
    assert codes(job).keys() <= {"FMT-009"}
    given = found_in(tmp_path, config, precision="bf16", optimizer="adamw", seq_len=4096, global_batch=8, train="full")
    assert [found.message for found in given.findings if found.code == "FMT-003"] == [
        "the file does not state recompute: none is assumed"
    ]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"zero_optimization": {"stage": 1}}, {"reshard_after_forward": False, "no_sync": True}),
        ({"zero_optimization": {"stage": 2}}, {"reshard_after_forward": False, "no_sync": False}),
        ({"zero_optimization": True}, {"dp_shard": 8, "no_sync": True}),
        ({"zero_optimization": {"stage": 0}}, {"dp_replicate": 8, "dp_shard": 1}),
        (
            {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}},
            {"reshard_after_forward": "subgroup", "reshard_group_size": 4},
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
            {"offload": "optimizer", "pin_memory": True},
        ),
        (
            {"zero_optimization": {"stage": 3, "cpu_offload": True, "cpu_offload_param": True}},
            {"offload": "all"},
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": False}}},
            {"offload": "all", "pin_memory": False},
        ),
        ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, {"offload": "none"}),
        ({"zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 4}}, {"tp": 4, "dp_shard": 2}),
        ({"bf16": {"enabled": True}}, {"reduce_dtype": "bf16"}),
        ({"bf16": {"enabled": False}}, {"reduce_dtype": "fp32"}),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, {"recompute": "full", "activation_offload": True}),
    ],
)  # fmt: skip
def test_config_entries_set_the_plans_settings(tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]) -> None:
    job = found_in(tmp_path, {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, **config})
    assert {name: setting(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("batches", "whole", "accumulation"),
    [
        ({"train_micro_batch_size_per_gpu": 2}, 16, 1),
        ({"train_batch_size": 32}, 32, 1),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, 64, 4),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}, 48, 3),
        ({"train_batch_size": 32, "tensor_parallel": {"autotp_size": 2}}, 16, 1),
    ],
)
@pytest.mark.full
def test_batch_sizes_are_derived_like_in_deepspeed(tmp_path: Path, batches: dict[str, Any], whole: int, accumulation: int) -> None:
    job = found_in(tmp_path, batches)
    workload = job.situation.request.workload
    assert (workload.global_batch, job.candidate.accumulation(workload)) == (whole, accumulation)
    found = parsed("deepspeed", ["check", "8", str(tmp_path / "ds_config.json")])[0]
    assert found["accumulation"] == accumulation
    assert found["micro_batch"] == job.candidate.knobs.micro_batch


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        ({"zero_optimisation": {"stage": 3}}, "FMT-001", "zero_optimisation.stage"),
        ({"fp16": {"enabeld": True}}, "FMT-001", "fp16.enabeld"),
        ({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}, "FMT-002", "int8"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "FMT-002", "nvme"),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"ratio": 0.5}}}, "FMT-002", "stays on the device"),
        ({"sequence_parallel_size": 2}, "FMT-002", "Ulysses"),
        ({"optimizer": {"type": "Lamb"}}, "FMT-002", "lamb"),
        ({"optimizer": {"type": "OneBitAdam"}}, "FMT-004", "onebitadam"),
        ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}, "FMT-004", "grad_accum_dtype"),
        (
            {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
            "FMT-002", "accumulated in fp32",
        ),
        ({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}}, "FMT-009", "stage3_max_live_parameters"),
    ],
)  # fmt: skip
def test_unsupported_entries_are_findings(tmp_path: Path, config: dict[str, Any], code: str, words: str) -> None:
    found = codes(found_in(tmp_path, {"train_micro_batch_size_per_gpu": 1, **config}))
    assert words in found[code]


def test_a_misspelt_name_gets_a_suggestion(tmp_path: Path) -> None:
    found = found_in(tmp_path, {"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 3}}).findings
    wrong = next(item for item in found if item.code == "FMT-001")
    assert wrong.do == "did you mean zero_optimization.stage?"
    assert wrong.line == 1


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"stage": "three"}},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "gpu"}}},
        {"train_micro_batch_size_per_gpu": 0},
        {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamV"}},
        {"train_micro_batch_size_per_gpu": 1, "communication_data_type": "int8"},
        {"train_batch_size": 3, "tensor_parallel": {"autotp_size": 2}},
    ],
)
def test_invalid_values_are_refused_with_their_position(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(FileError) as caught:
        found_in(tmp_path, config)
    assert ":1:" in str(caught.value)


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "formats" / "ds_config.json"
    assert main(["check", str(path), "--model", "8b", "--gpus", "8xH100", "--seq-len", "4096"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "offload optimizer" in printed
    assert "What one change would bring" in printed
