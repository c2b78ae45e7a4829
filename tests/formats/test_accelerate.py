"""The file of accelerate config: exported plans as accelerate's launcher reads them, and imports of users' files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.described import codes, described, setting
from formats.frameworks import parsed
from formats.names import accepted, listed
from formats.plans import a_plan, plans
from strategist import api
from strategist.cli.main import main
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist.files import yaml_file
from strategist.formats.accelerate_export import configuration
from strategist.formats.catalog import find_format
from strategist.formats.commented_text import yaml_text
from strategist.formats.completed_config import GivenValues, Setup

HALF = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
MIXED = {"fp32": "no"}


def found_in(folder: Path, config: dict[str, Any], gpus: str = "8xH100", **settings: Any) -> Setup:
    path = folder / "accelerate.yaml"
    path.write_text(yaml_text(config), encoding="utf-8")
    return described(path, GivenValues(gpus=gpus, model="8b", workload={"seq_len": 4096}, settings=settings))


def fsdp(**entries: Any) -> dict[str, Any]:
    """A file with FSDP2 on eight devices."""
    section = {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", **entries}
    return {"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8, "fsdp_config": section}


def expected_settings(plan: Plan, kind: str) -> dict[str, Any]:
    """The settings that accelerate must read from a plan's file."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    found: dict[str, Any] = {
        "processes": plan.cluster.devices, "nodes": plan.cluster.nodes, "per_node": plan.cluster.gpus_per_node,
        "precision": MIXED.get(plan.workload.precision, plan.workload.precision), "compiled": knobs.compile,
        "fullgraph": knobs.compile and plan.candidate.options.fullgraph,
    }  # fmt: skip
    if kind == "fsdp":
        found |= {
            "version": 2, "offload": "CPUOffloadPolicy" if knobs.offload == "all" else "OffloadPolicy",
            "reshard": knobs.reshard_after_forward, "recompute": knobs.recompute == "full", "wrap": "transformer_auto_wrap_policy",
            "activation_offload": knobs.activation_offload, "reduce_dtype": HALF[plan.workload.precision],
        }  # fmt: skip
        degrees = [layout.dp_replicate, layout.dp_shard, layout.cp, layout.tp]
        found |= {"degrees": degrees} if layout.dp_shard < layout.world_size else {}
        found |= {"rotate": plan.candidate.options.cp_rotate} if layout.cp > 1 else {}
    if kind == "deepspeed":
        found |= {"accumulation": plan.accumulation, "optimizer_device": "none" if knobs.offload == "none" else "cpu"}
        found |= {"parameter_device": "cpu" if knobs.offload == "all" else "none"}
        if layout.dp_shard > 1 and knobs.reshard_after_forward is True:
            found["stage"] = 3
    if kind in ("several", "one"):
        assert layout.dp_replicate == layout.world_size
    return found


@pytest.mark.full
def test_accelerate_reads_exported_plans_correctly(tmp_path: Path) -> None:
    tried = plans("accelerate")
    paths = []
    for index, plan in enumerate(tried):
        paths.append(tmp_path / f"{index}.yaml")
        paths[-1].write_text(find_format("accelerate").write(plan, {}).files[0].text, encoding="utf-8")
    kinds = set()
    for plan, found in zip(tried, parsed("accelerate", ["check", *map(str, paths)]), strict=True):
        assert "refused" not in found, (found, plan.candidate)
        expected = expected_settings(plan, found["kind"])
        assert {name: found[name] for name in expected} == expected, plan.candidate
        kinds.add(found["kind"])
    assert kinds >= {"fsdp", "deepspeed", "one"}


def test_exports_contain_the_keys_that_the_launcher_requires() -> None:
    """FSDP2 on GPUs; layers are compiled one by one, with static shapes."""
    plan = a_plan("accelerate", lambda plan: plan.candidate.layout.dp_shard > 1)
    compiled = replace(plan, candidate=replace(plan.candidate, knobs=replace(plan.candidate.knobs, compile=True, offload="none")))
    found = configuration(replace(compiled, candidate=replace(compiled.candidate, layout=Layout(dp_shard=plan.cluster.devices))))
    expected = {"distributed_type": "FSDP", "machine_rank": 0, "same_network": True, "use_cpu": False}
    assert {name: found[name] for name in expected} == expected
    assert found["fsdp_config"]["fsdp_version"] == 2
    dynamo = found["dynamo_config"]
    assert (dynamo["dynamo_use_dynamic"], dynamo["dynamo_use_regional_compilation"]) == (False, True)


@pytest.mark.full
def test_listed_names_equal_those_of_the_launcher() -> None:
    assert listed("accelerate") == accepted("accelerate")


@pytest.mark.full
def test_every_config_file_of_trl_is_read() -> None:
    found = parsed("accelerate", ["shipped"])
    assert len(found) >= 7
    for path in found:
        single = "single" in path
        review = api.import_plan(path, GivenValues(gpus="1xH100" if single else "8xH100", model="8b", workload={}, settings={}))
        assert not codes(review).keys() - {"FMT-002", "FMT-009"}, path


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (fsdp(), {"dp_shard": 8, "reshard_after_forward": True, "reduce_dtype": "bf16", "recompute": "none"}),
        (fsdp(fsdp_reshard_after_forward=False), {"reshard_after_forward": False}),
        (fsdp(fsdp_offload_params=True, fsdp_activation_checkpointing="true"), {"offload": "all", "recompute": "full"}),
        (fsdp(reshard_after_forward=False, offload_params=True), {"reshard_after_forward": False, "offload": "all"}),
        (fsdp(fsdp_version=1, fsdp_sharding_strategy="SHARD_GRAD_OP"), {"dp_shard": 8, "reshard_after_forward": False}),
        (fsdp(fsdp_version=1, fsdp_sharding_strategy=3), {"dp_shard": 1, "dp_replicate": 8}),
        (
            fsdp(fsdp_version=1, fsdp_sharding_strategy="HYBRID_SHARD") | {"num_processes": 8, "num_machines": 2},
            {"dp_shard": 4, "dp_replicate": 2, "reshard_after_forward": True},
        ),
        (
            fsdp() | {"parallelism_config": {"parallelism_config_tp_size": 2, "parallelism_config_dp_shard_size": 4}},
            {"tp": 2, "dp_shard": 4, "dp_replicate": 1},
        ),
        (
            fsdp() | {"parallelism_config": {"parallelism_config_cp_size": 8, "parallelism_config_cp_comm_strategy": "alltoall"}},
            {"cp": 8, "dp_shard": 1, "cp_rotate": "alltoall"},
        ),
        ({"distributed_type": "MULTI_GPU", "num_processes": 8}, {"dp_replicate": 8, "dp_shard": 1, "reduce_dtype": "fp32"}),
        (
            {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu"}},
            {"dp_shard": 8, "reshard_after_forward": True, "offload": "optimizer", "no_sync": False},
        ),
        ({"distributed_type": "DEEPSPEED"}, {"reshard_after_forward": False, "no_sync": False}),
        (fsdp() | {"dynamo_config": {"dynamo_backend": "INDUCTOR"}}, {"compile": True}),
        (fsdp() | {"dynamo_config": {"dynamo_backend": "no"}}, {"compile": False}),
    ],
)  # fmt: skip
def test_config_entries_set_the_plans_settings(tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]) -> None:
    job = found_in(tmp_path, config)
    assert {name: setting(job, name) for name in expected} == expected


def test_a_referenced_deepspeed_file_is_read(tmp_path: Path) -> None:
    config = {
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"deepspeed_config_file": "zero.json"},
        "mixed_precision": "bf16",
    }
    missing = found_in(tmp_path, config)
    assert setting(missing, "no_sync") is False
    assert any("zero.json is not found" in found.message for found in missing.findings)
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 4}', encoding="utf-8")
    found = found_in(tmp_path, config)
    assert setting(found, "no_sync") is True
    assert found.candidate.accumulation(found.situation.request.workload) == 4


def test_settings_of_the_training_script_are_reported_as_assumed(tmp_path: Path) -> None:
    texts = [found.message for found in found_in(tmp_path, fsdp()).findings if found.code == "FMT-003"]
    assert [text.partition(":")[0].removeprefix("the file does not state ") for text in texts] == [
        "global_batch", "micro_batch", "optimizer", "train",
    ]  # fmt: skip
    given = [found.message for found in found_in(tmp_path, fsdp(), micro_batch=2).findings if found.code == "FMT-003"]
    assert "micro_batch" not in " ".join(given)


def test_degrees_that_break_a_law_are_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml_text(fsdp() | {"parallelism_config": {"parallelism_config_dp_shard_size": 4}}), encoding="utf-8")
    review = api.import_plan(path, GivenValues(gpus="8xH100", model="8b"))
    assert "must equal the 8 devices" in codes(review)["FMT-004"]


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        (fsdp(fsdp_reshard_after_foward=True), "FMT-001", "fsdp_reshard_after_foward"),
        (fsdp(fsdp_auto_wrap_policy="NO_WRAP"), "FMT-002", "all layers are gathered at once"),
        (fsdp(fsdp_auto_wrap_policy="SIZE_BASED_WRAP"), "FMT-002", "by size"),
        (fsdp() | {"parallelism_config": {"parallelism_config_sp_size": 8}}, "FMT-002", "Ulysses"),
        (fsdp(fsdp_version=1) | {"parallelism_config": {"parallelism_config_dp_shard_size": 8}}, "FMT-004", "fsdp_version 2"),
        (fsdp() | {"num_processes": 16}, "FMT-008", "16 in the file"),
        (fsdp() | {"mixed_precision": "fp8"}, "FMT-002", "fp8"),
        (fsdp() | {"use_cpu": True}, "FMT-002", "use_cpu"),
        ({"distributed_type": "DEEPSPEED", "dynamo_config": {"dynamo_backend": "INDUCTOR"}}, "FMT-002", "passes nothing of it on"),
        (fsdp(fsdp_backward_prefetch="BACKWARD_PRE"), "FMT-009", "backward_prefetch"),
        ({"distributed_type": "MEGATRON_LM", "megatron_lm_config": {"megatron_lm_tp_degree": 2}}, "FMT-002", "Megatron"),
    ],
)
def test_unsupported_entries_are_findings(tmp_path: Path, config: dict[str, Any], code: str, words: str) -> None:
    assert words in codes(found_in(tmp_path, config))[code]


@pytest.mark.parametrize(
    "config",
    [
        {"distributed_type": "MULTI_GPUS"},
        fsdp(fsdp_reshard_after_forward="FULL_SHARD"),
        fsdp(fsdp_version=1, fsdp_sharding_strategy="FULL"),
        fsdp(fsdp_auto_wrap_policy="TRANSFORMER"),
        fsdp() | {"mixed_precision": "int8"},
        fsdp() | {"parallelism_config": {"parallelism_config_tp_size": 0}},
    ],
)
def test_invalid_values_are_refused_with_their_position(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(FileError) as caught:
        found_in(tmp_path, config)
    assert "accelerate.yaml:" in str(caught.value)


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "formats" / "accelerate.yaml"
    given = ["--model", "8b", "--gpus", "8xH100", "--seq-len", "4096", "--global-batch", "64", "--fix", "micro_batch=1"]
    assert main(["check", str(path), *given]) == 0
    assert "tp 2" in " ".join(capsys.readouterr().out.split())
    assert yaml_file.load(path).data["distributed_type"] == "FSDP"
