"""TrainingArguments: exported plans as transformers reads them, and imports of users' files."""

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
from strategist.contract.review import Review
from strategist.errors import FileError
from strategist.formats.catalog import find_format
from strategist.formats.commented_text import yaml_text
from strategist.formats.completed_config import GivenValues, Setup

OPTIMIZERS = {"adamw8bit": "adamw_torch_8bit", "sgd": "sgd"}


def found_in(folder: Path, config: dict[str, Any] | str, gpus: str = "8xH100", **given: Any) -> Setup:
    path = folder / ("train.sh" if isinstance(config, str) else "arguments.yaml")
    path.write_text(config if isinstance(config, str) else yaml_text(config), encoding="utf-8")
    return described(path, GivenValues(gpus=gpus, model="8b", workload={"seq_len": 4096, **given}, settings={}))


def arguments(**more: Any) -> dict[str, Any]:
    return {"output_dir": "output", "per_device_train_batch_size": 1, "bf16": True, **more}


def fsdp(**section: Any) -> dict[str, Any]:
    return arguments(fsdp=True, fsdp_config={"version": 2, **section})


def expected_settings(plan: Plan, kind: str) -> dict[str, Any]:
    """The settings that transformers must read from a plan's file."""
    layout, knobs, options, workload = plan.candidate.layout, plan.candidate.knobs, plan.candidate.options, plan.workload
    kernel = "adamw_torch_fused" if options.optimizer_kernel == "fused" else "adamw_torch"
    found: dict[str, Any] = {
        "micro_batch": knobs.micro_batch, "accumulation": plan.accumulation, "compile": knobs.compile,
        "bf16": workload.precision == "bf16", "fp16": workload.precision == "fp16",
        "optim": OPTIMIZERS.get(workload.optimizer, kernel), "save_steps": options.checkpoint_interval,
        "recompute": knobs.recompute != "none",
    }  # fmt: skip
    if kind != "fsdp" and knobs.recompute != "none":
        every = 2 if knobs.recompute == "every_second_layer" else 1
        found["recompute_kwargs"] = {"every_n_layers": every, "offload": knobs.activation_offload}
    if kind == "fsdp":
        offload = "CPUOffloadPolicy" if knobs.offload == "all" else "OffloadPolicy"
        found |= {"version": 2, "reshard": knobs.reshard_after_forward, "offload": offload}
    if kind != "deepspeed" and plan.accumulation > 1:
        found["each"] = not knobs.no_sync
    if kind == "deepspeed":
        half = workload.precision != "fp32"
        reduced = (
            "torch.float32"
            if knobs.reduce_dtype == "fp32"
            else f"torch.{'bfloat16' if workload.precision == 'bf16' else 'float16'}"
        )
        found |= {
            "whole": workload.global_batch * layout.tp, "tp": layout.tp if layout.tp > 1 else 0,
            "hpz": knobs.reshard_group_size if knobs.reshard_after_forward == "subgroup" else 1,
            "types": [found["bf16"], found["fp16"]], "reduced": reduced if half else "None",
            "optimizer_device": "none" if knobs.offload == "none" else "cpu",
            "parameter_device": "cpu" if knobs.offload == "all" else "none",
        }  # fmt: skip
        found |= {"pinned": options.pin_memory} if knobs.offload != "none" else {}
        found |= {"loss_parallel": knobs.loss_parallel} if layout.tp > 1 else {}
        if layout.dp_shard > 1:
            reducing = 1 if knobs.no_sync and plan.accumulation > 1 else 2
            found["stage"] = 3 if knobs.reshard_after_forward else reducing
    if kind == "replicas" and layout.dp_replicate > 1:
        found["bucket"] = options.bucket_cap_mb
    return found


@pytest.mark.full
def test_transformers_reads_exported_plans_correctly(tmp_path: Path) -> None:
    by_ranks: dict[int, list[tuple[Plan, str]]] = {}
    for index, plan in enumerate(plans("hf-trainer")):
        path = tmp_path / f"{index}.yaml"
        path.write_text(find_format("hf-trainer").write(plan, {}).files[0].text, encoding="utf-8")
        by_ranks.setdefault(plan.cluster.devices, []).append((plan, str(path)))
    kinds, degrees = set(), set()
    for ranks, group in by_ranks.items():
        answers = parsed("hf_trainer", ["check", str(ranks), *(path for _, path in group)])
        for (plan, _), found in zip(group, answers, strict=True):
            assert "refused" not in found, (found, plan.candidate)
            expected = expected_settings(plan, found["kind"])
            assert {name: found[name] for name in expected} == expected, plan.candidate
            kinds.add(found["kind"])
            degrees.add(plan.candidate.layout.tp)
    assert kinds == {"fsdp", "deepspeed", "replicas"}
    assert degrees >= {1, 2}


@pytest.mark.full
def test_listed_names_equal_those_of_the_arguments() -> None:
    assert listed("hf-trainer") == accepted("hf-trainer")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (fsdp(), {"dp_shard": 8, "reshard_after_forward": True, "reduce_dtype": "bf16", "no_sync": True}),
        (fsdp(cpu_offload=True, reshard_after_forward=False), {"offload": "all", "reshard_after_forward": False}),
        (fsdp(activation_checkpointing=True), {"recompute": "full"}),
        (arguments(fsdp="full_shard auto_wrap offload"), {"dp_shard": 8, "offload": "all", "reshard_after_forward": True}),
        (arguments(fsdp=["shard_grad_op", "auto_wrap"]), {"reshard_after_forward": False}),
        (arguments(fsdp="", gradient_checkpointing=True), {"dp_replicate": 8, "dp_shard": 1, "recompute": "full"}),
        (arguments(), {"dp_replicate": 8, "reduce_dtype": "fp32", "recompute": "none", "optimizer_kernel": "fused"}),
        (
            arguments(activation_checkpointing=True, activation_checkpointing_kwargs={"every_n_layers": 2}),
            {"recompute": "every_second_layer"},
        ),
        (
            arguments(activation_checkpointing=True, activation_checkpointing_kwargs={"offload": True}),
            {"recompute": "full", "activation_offload": True},
        ),
        (
            arguments(deepspeed={"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}),
            {"dp_shard": 8, "offload": "optimizer", "no_sync": False, "reduce_dtype": "bf16"},
        ),
        (
            arguments(deepspeed={"zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2}}),
            {"dp_shard": 4, "tp": 2, "loss_parallel": False},
        ),
        (
            arguments(accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}}),
            {"no_sync": False},
        ),
        (arguments(torch_compile=True, ddp_bucket_cap_mb=50, save_steps=20), {"compile": True, "bucket_cap_mb": 50}),
        (arguments(optim="adamw_torch"), {"optimizer_kernel": "foreach"}),
    ],
)  # fmt: skip
def test_config_entries_set_the_plans_settings(tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]) -> None:
    job = found_in(tmp_path, config)
    assert {name: setting(job, name) for name in expected} == expected


def test_a_launch_script_with_flags_is_read(tmp_path: Path) -> None:
    script = """#!/bin/bash
BATCH=2
torchrun --nproc_per_node=8 train.py \\
  --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True --output_dir out \\
  --per_device_train_batch_size $BATCH --gradient_accumulation_steps 8 \\
  --fsdp "full_shard auto_wrap" --fsdp_config fsdp.json --gradient_checkpointing
"""
    (tmp_path / "fsdp.json").write_text('{"reshard_after_forward": false}', encoding="utf-8")
    job = found_in(tmp_path, script)
    assert job.situation.request.workload.global_batch == 128
    assert setting(job, "micro_batch") == 2
    assert setting(job, "recompute") == "full"
    assert setting(job, "reshard_after_forward") is False


def test_a_referenced_deepspeed_file_is_read(tmp_path: Path) -> None:
    config = arguments(deepspeed="zero.json", gradient_accumulation_steps=4)
    assert any("zero.json is not found" in found.message for found in found_in(tmp_path, config).findings)
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}}', encoding="utf-8")
    job = found_in(tmp_path, config)
    assert setting(job, "no_sync") is True
    assert job.candidate.accumulation(job.situation.request.workload) == 4


def test_trl_arguments_set_lora_and_sequence_length(tmp_path: Path) -> None:
    path = tmp_path / "arguments.yaml"
    config = arguments(
        use_peft=True, lora_r=8, load_in_4bit=True, max_length=2048, dataset_name="a/b", gradient_accumulation_steps=2
    )
    path.write_text(yaml_text(config), encoding="utf-8")
    review = api.import_plan(path, GivenValues(gpus="8xH100", model="8b"))
    assert review.plan is not None
    workload = review.plan.workload
    assert (workload.train, workload.lora_rank, workload.seq_len, workload.global_batch) == ("qlora", 8, 2048, 16)
    assert not codes(review)


@pytest.mark.parametrize(("launcher", "count"), [("accelerate launch --config_file zero3.yaml", 1), ("torchrun", 0)])
def test_sharding_is_open_only_with_a_launcher_that_may_shard(tmp_path: Path, launcher: str, count: int) -> None:
    flags = "--per_device_train_batch_size 2 --bf16 --max_length 4096 --gradient_checkpointing"
    (tmp_path / "run.sh").write_text(f"{launcher} train.py {flags}\n", encoding="utf-8")
    review = api.import_plan(tmp_path / "run.sh", GivenValues(gpus="8xH100", model="8b", workload={"train": "full"}, settings={}))
    assert sum(item.startswith("accelerate launch") for item in review.uncertainties) == count


def test_what_a_script_trains_is_open_where_no_argument_states_it(tmp_path: Path) -> None:
    flags = "--per_device_train_batch_size 2 --bf16 --max_length 4096 --gradient_checkpointing"
    (tmp_path / "run.sh").write_text(f"torchrun train.py {flags}\n", encoding="utf-8")

    def checked(**workload: str) -> Review:
        return api.import_plan(tmp_path / "run.sh", GivenValues(gpus="8xH100", model="8b", workload=workload, settings={}))

    [doubt] = checked().uncertainties
    assert doubt.startswith("train full is assumed, with lora it needs ")
    assert "--train lora" in doubt
    assert {train: checked(train=train).fit.value for train in ("full", "lora")} == {"full": "does not fit", "lora": "fits"}


def test_given_dp_shard_settles_an_open_verdict(tmp_path: Path) -> None:
    (tmp_path / "arguments.yaml").write_text(yaml_text(arguments(bf16=True)), encoding="utf-8")

    def checked(**settings: int) -> Review:
        given = GivenValues(gpus="8xH100", model="8b", workload={"train": "full", "seq_len": 4096}, settings=settings)
        return api.import_plan(tmp_path / "arguments.yaml", given)

    assert [text.partition(" could")[0] for text in checked().uncertainties] == ["accelerate launch --config_file"]
    assert not checked(dp_shard=1).uncertainties
    assert not {"FMT-005", "FMT-010", "FMT-011"} & set(codes(checked(dp_shard=8)))


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        (arguments(gradient_acumulation_steps=2), "FMT-001", "gradient_acumulation_steps"),
        (fsdp(reshard_after_foward=True), "FMT-001", "reshard_after_foward"),
        (arguments(fsdp="hybrid_shard auto_wrap"), "FMT-004", "FSDP1"),
        (arguments(fp16=True), "FMT-004", "both"),
        (arguments(parallelism_config={"tp_size": 2}), "FMT-004", "object of accelerate's"),
        (arguments(optim="adafactor"), "FMT-002", "adafactor"),
        (arguments(auto_find_batch_size=True), "FMT-002", "until it fits"),
        (arguments(use_liger_kernel=True), "FMT-002", "Liger"),
        (fsdp(auto_wrap_policy="SIZE_BASED_WRAP"), "FMT-002", "not layers"),
        (
            arguments(activation_checkpointing=True, activation_checkpointing_kwargs={"every_n_layers": 4}),
            "FMT-002", "priced as of all layers",
        ),
        (arguments(deepspeed={"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}), "FMT-002", "int8"),
    ],
)  # fmt: skip
def test_unsupported_entries_are_findings(tmp_path: Path, config: dict[str, Any], code: str, words: str) -> None:
    assert words in codes(found_in(tmp_path, config))[code]


@pytest.mark.parametrize(
    "config",
    [
        arguments(optim="adamv"),
        arguments(fsdp="half_shard"),
        arguments(bf16="maybe"),
        arguments(gradient_accumulation_steps=0),
        arguments(deepspeed={"zero_optimization": {"stage": 7}}),
    ],
)
def test_invalid_values_are_refused_with_their_position(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(FileError) as caught:
        found_in(tmp_path, config)
    assert "arguments.yaml:" in str(caught.value)


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "formats" / "arguments.yaml"
    assert main(["check", str(path), "--model", "8b", "--gpus", "8xH100"]) == 0
    assert "micro-batch 2x4, recompute full" in " ".join(capsys.readouterr().out.split())
