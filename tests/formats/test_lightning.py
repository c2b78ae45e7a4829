"""Scripts with Lightning's Trainer: exported scripts as Lightning runs them, and imports of users' scripts."""

from pathlib import Path
from typing import Any

import pytest

from formats.described import codes, described, setting
from formats.frameworks import parsed
from formats.names import accepted, listed
from formats.plans import plans
from strategist.cli.main import main
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist.formats.catalog import find_format
from strategist.formats.completed_config import GivenValues, Setup

IMPORTS = "import lightning as L\nimport torch\nfrom torch.distributed.fsdp import ShardingStrategy\n"
ROWS = [*(f"self_attn.{name}_proj" for name in "qkv"), "mlp.gate_proj", "mlp.up_proj"]
COLUMNS = ["self_attn.o_proj", "mlp.down_proj"]
SPLIT = {
    **{f"layers.{layer}.{name}.weight": "S(0)" for layer in range(2) for name in ROWS},
    **{f"layers.{layer}.{name}.weight": "S(1)" for layer in range(2) for name in COLUMNS},
    "embed_tokens.weight": "S(0)", "lm_head.weight": "S(0)",
}  # fmt: skip
"""The dimension of each weight of the stand-in module that tensor parallelism shards."""

DTYPES = {"bf16": "torch.bfloat16", "fp32": "torch.float32"}


def found_in(folder: Path, text: str, gpus: str = "8xH100") -> Setup:
    path = folder / "train.py"
    path.write_text(f"{IMPORTS}{text}", encoding="utf-8")
    return described(path, GivenValues(gpus=gpus, model="8b", workload={"seq_len": 4096}, settings={}))


def expected_settings(plan: Plan) -> dict[str, Any]:
    """The settings that Lightning and torch must have with a plan's script."""
    layout, knobs, options = plan.candidate.layout, plan.candidate.knobs, plan.candidate.options
    found: dict[str, Any] = {
        "devices": plan.cluster.gpus_per_node, "num_nodes": plan.cluster.nodes, "accumulation": plan.accumulation,
        "micro_batch": knobs.micro_batch, "recomputed": knobs.recompute == "full", "compiled": knobs.compile,
    }  # fmt: skip
    if layout.dp_shard > 1 or layout.tp > 1:
        kept = knobs.reshard_group_size if knobs.reshard_after_forward == "subgroup" else None
        found |= {
            "strategy": "ModelParallelStrategy", "precision": "32-true", "mesh": [layout.dp_shard, layout.tp], "kept": kept,
            "split": SPLIT if layout.tp > 1 else {},
            "resharded": knobs.reshard_after_forward is not False, "reduced": DTYPES[knobs.reduce_dtype],
            "computed": DTYPES[plan.workload.precision],
        }  # fmt: skip
    else:
        found["precision"] = "bf16-mixed" if plan.workload.precision == "bf16" else "32-true"
    if layout.dp_replicate > 1:
        names = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters")
        found |= {"strategy": "DDPStrategy", "ddp": {name: getattr(options, name) for name in names}}
    return found


@pytest.mark.full
def test_lightning_runs_exported_scripts_as_planned(tmp_path: Path) -> None:
    by_ranks: dict[int, list[tuple[Plan, str]]] = {}
    for index, plan in enumerate(plans("lightning")):
        path = tmp_path / f"{index}.py"
        path.write_text(find_format("lightning").write(plan, {}).files[0].text, encoding="utf-8")
        by_ranks.setdefault(plan.cluster.devices, []).append((plan, str(path)))
    strategies, degrees = set(), set()
    for ranks, group in by_ranks.items():
        for (plan, _), found in zip(group, parsed("lightning", ["check", str(ranks), *(path for _, path in group)]), strict=True):
            assert "refused" not in found, (found, plan.candidate)
            expected = expected_settings(plan)
            assert {name: found[name] for name in expected} == expected, plan.candidate
            strategies.add(found["strategy"])
            degrees.add(plan.candidate.layout.tp)
    assert degrees >= {1, 2}
    assert strategies >= {"ModelParallelStrategy", "SingleDeviceStrategy"}


@pytest.mark.full
def test_listed_names_equal_the_keywords_of_the_calls() -> None:
    assert listed("lightning") == accepted("lightning")


TRAINER = "L.Trainer(devices=8, precision='bf16-mixed', accumulate_grad_batches=2, strategy={})\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRAINER.format("'ddp'"), {"dp_replicate": 8, "reduce_dtype": "fp32", "no_sync": True}),
        (TRAINER.format("'ddp_find_unused_parameters_true'"), {"find_unused_parameters": True}),
        (TRAINER.format("L.pytorch.strategies.DDPStrategy(static_graph=True, bucket_cap_mb=50)"), {"bucket_cap_mb": 50}),
        (TRAINER.format("'fsdp'"), {"dp_shard": 8, "reshard_after_forward": True, "reduce_dtype": "bf16"}),
        (TRAINER.format("'fsdp_cpu_offload'"), {"offload": "all"}),
        (TRAINER.format("FSDPStrategy(cpu_offload=CPUOffload(offload_params=True))"), {"offload": "all"}),
        (TRAINER.format("DDPStrategy(ddp_comm_hook=torch.default_hooks.bf16_compress_hook)"), {"comm_hook": "bf16"}),
        (
            "SIZE = (2, 4)\ns = FSDPStrategy(sharding_strategy='HYBRID_SHARD', device_mesh=SIZE)\n" + TRAINER.format("s"),
            {"dp_replicate": 2, "dp_shard": 4, "reshard_after_forward": True, "no_sync": False},
        ),
        (TRAINER.format("FSDPStrategy(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"), {"reshard_after_forward": False}),
        (TRAINER.format("FSDPStrategy(activation_checkpointing_policy={Block})"), {"recompute": "full"}),
        (TRAINER.format("FSDPStrategy(activation_checkpointing_policy=None)"), {"recompute": "none"}),
        (TRAINER.format("FSDPStrategy(activation_checkpointing=[])"), {"recompute": "none"}),
        ("def policy(*_): ...\n" + TRAINER.format("FSDPStrategy(activation_checkpointing_policy=policy)"), {"recompute": "full"}),
        (TRAINER.format("'deepspeed_stage_3_offload'"), {"dp_shard": 8, "reshard_after_forward": True, "offload": "all"}),
        (TRAINER.format("DeepSpeedStrategy(stage=2, offload_optimizer=True)"), {"offload": "optimizer", "pin_memory": False}),
        (
            TRAINER.format("DeepSpeedStrategy(config={'zero_optimization': {'stage': 3, 'offload_param': {'device': 'cpu'}}})"),
            {"dp_shard": 8, "offload": "all", "reduce_dtype": "bf16", "no_sync": False},
        ),
        (
            "s = ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=2)\nfully_shard(m, reshard_after_forward=False)\n"
            + TRAINER.format("s"),
            {"dp_shard": 4, "tp": 2, "reshard_after_forward": False},
        ),
        (
            "s = ModelParallelStrategy(tensor_parallel_size=8, data_parallel_size=1)\n"
            "parallelize_module(m, t, {'n': SequenceParallel()})\n" + TRAINER.format("s"),
            {"dp_shard": 1, "tp": 8, "sequence_parallel": True, "loss_parallel": False},
        ),
        (
            "model = torch.compile(model)\nDataLoader(d, batch_size=4)\n" + TRAINER.format("'ddp'"),
            {"compile": True, "micro_batch": 4},
        ),
    ],
)  # fmt: skip
def test_calls_set_the_plans_settings(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    job = found_in(tmp_path, text)
    assert {name: setting(job, name) for name in expected} == expected
    assert not codes(job)


def test_values_known_only_at_run_time_are_findings(tmp_path: Path) -> None:
    job = found_in(
        tmp_path, "L.Trainer(devices=args.devices, precision=args.precision, strategy='fsdp')\nLoader(batch_size=size)\n"
    )
    messages = [found.message for found in job.findings if found.code in ("FMT-003", "FMT-011")]
    assert any(text.startswith("Trainer.precision is decided") for text in messages)
    assert any(text.startswith("the file does not state micro_batch") for text in messages)
    assert setting(job, "dp_shard") == 8


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("L.Trainer(devices=8, acumulate_grad_batches=2)", "FMT-001", "acumulate_grad_batches"),
        ("L.Trainer(devices=4)", "FMT-008", "4 in the file"),
        ("L.Trainer(precision='16-true')", "FMT-002", "16-mixed"),
        ("L.Trainer(precision='transformer-engine')", "FMT-002", "fp8"),
        ("L.Trainer(strategy=DeepSpeedStrategy(config={'zero_optimization': {'stge': 1}}))", "FMT-001", "zero_optimization.stge"),
        ("L.Trainer(strategy=DeepSpeedStrategy(reduce_bucket_size=100))", "FMT-009", "reduce_bucket_size"),
    ],
)
def test_unsupported_arguments_are_findings(tmp_path: Path, text: str, code: str, words: str) -> None:
    assert words in codes(found_in(tmp_path, text))[code]


@pytest.mark.parametrize(
    "text",
    ["L.Trainer(strategy='tpu')", "L.Trainer(precision='int8')", "L.Trainer(accumulate_grad_batches=0)", "L.Trainer(devices=8"],
)
def test_invalid_arguments_are_refused_with_their_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError) as caught:
        found_in(tmp_path, text)
    assert "train.py:4" in str(caught.value)


def test_the_example_file_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "formats" / "train_lightning.py"
    assert main(["check", str(path), "--model", "8b", "--gpus", "8xH100", "--seq-len", "4096"]) == 0
    assert "micro-batch 2x4" in " ".join(capsys.readouterr().out.split())
