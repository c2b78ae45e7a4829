"""Plans with every technique of the exported script, runs of their scripts, and the reference of ``strategist run``."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

from runtime.launch import NO_COMPILER, forked, records, trial_arguments

from formats.plans import deck
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import MoEShape, RopeScaling
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.pytorch import conditions, write
from strategist.formats.pytorch_blocks import FILES, block_text, holds
from strategist.planning.planner import price_candidate
from strategist.profiles.models import find_preset
from strategist.profiles.situation import situation

STEPS = 3
AXES = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep")
GATHERED, RING = {"cp_attention": "flex", "cp_restore_buffers": False}, {"cp_restore_buffers": False}
DENSE = find_preset("tiny")
assert DENSE is not None
STRETCHED = RopeScaling(kind="llama3", factor=8.0, original_positions=32, low_frequency=1.0, high_frequency=4.0)
QWEN = replace(DENSE, name="qwen", qk_norm=True, tied_embeddings=True, rope_scaling=STRETCHED)
BIASED = replace(DENSE, name="qwen2", qkv_bias=True)
SPARSE = replace(
    DENSE, name="sparse",
    moe=MoEShape(
        experts=8, experts_per_token=2, expert_ffn_size=64, shared_experts=1, first_dense_layers=1, router_score="sigmoid",
        router_groups=4, router_groups_per_token=2, routed_scale=2.5, balance_coefficient=0.1,
    ),
)  # fmt: skip
MIXTRAL = replace(DENSE, name="mixtral", moe=MoEShape(experts=8, experts_per_token=2, expert_ffn_size=64, balance_coefficient=0.0))
QWEN_MOE = replace(DENSE, name="qwen3 moe", qk_norm=True, moe=MoEShape(experts=8, experts_per_token=2, expert_ffn_size=64))
STEERED = replace(
    SPARSE, name="steered",
    moe=replace(SPARSE.moe, router_balance_bias=True, shared_experts=0, router_parameter_bias=True),
)  # fmt: skip
EXPERTS = {"model": SPARSE}
LORA = {"train": "lora", "lora_rank": 4}
QLORA = {"train": "qlora", "lora_rank": 4}
ADAMW = {"optimizer": "adamw"}
"""Other cases have SGD with a large learning rate, which shows a wrong mean of gradients."""

PIPELINE = {"no_sync": True}
BOTH = {"sequence_parallel": True, "loss_parallel": True}
FULLGRAPH = {"fullgraph": True}
CHUNKED = {"chunked_loss": True}

Case = tuple[dict, ...]
"""Layout, knobs, options and training (model and workload settings)."""

CASES: dict[str, Case] = {
    "fsdp": ({"dp_shard": 4}, {"recompute": "selective"}, {"reshard_root": True, "optimizer_kernel": "fused"}, ADAMW),
    "fsdp, subgroup": (
        {"dp_shard": 4}, {"reshard_after_forward": "subgroup", "reshard_group_size": 2}, {"optimizer_kernel": "for_loop"},
    ),
    "hsdp": (
        {"dp_shard": 2, "dp_replicate": 2},
        {"reshard_after_forward": False, "no_sync": True, "recompute": "full"}, {"layers_per_unit": 2},
        {"model": BIASED},
    ),
    "ddp": ({"dp_replicate": 2}, {"no_sync": True, "recompute": "every_second_layer"}),
    "ddp, buckets": (
        {"dp_replicate": 2}, {"micro_batch": 4}, {"gradient_as_bucket_view": True, "static_graph": True}, {"model": QWEN},
    ),
    "tp x fsdp": (
        {"tp": 2, "dp_shard": 2},
        {
            **BOTH, "micro_batch": 2, "recompute": "selective",
            "saved_operations": "every_second_matmul+attention+collectives",
        },
        {"optimizer_kernel": "fused"}, ADAMW,
    ),
    "tp": ({"tp": 2}, {"micro_batch": 2}, {}, {"model": QWEN}),
    "gpipe": ({"pp": 2}, {**PIPELINE, "pp_schedule": "gpipe", "recompute": "full"}, {"checkpoint": "async"}),
    "pp x fsdp": ({"pp": 2, "dp_shard": 2}, PIPELINE, {"checkpoint": "async_pinned"}),
    "pp x replicas": ({"pp": 2, "dp_replicate": 2}, PIPELINE),
    "interleaved": (
        {"pp": 2, "dp_shard": 2}, {**PIPELINE, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2},
        {"optimizer_kernel": "fused"}, ADAMW,
    ),
    "pp x tp": ({"pp": 2, "tp": 2}, {**PIPELINE, **BOTH}),
    "offload": ({"dp_shard": 2}, {"offload": "all"}, {}, ADAMW),
    "cp x fsdp, gathered": (
        {"cp": 2, "dp_shard": 2}, {"recompute": "selective", "saved_operations": "attention", "micro_batch": 2}, GATHERED,
    ),
    "cp, gathered in order": ({"cp": 2}, {"recompute": "full", "micro_batch": 4}, {**GATHERED, "cp_load_balance": "none"}),
    "pp x cp, ring": ({"pp": 2, "cp": 2}, PIPELINE, RING),
    "cp x tp, ring": ({"cp": 2, "tp": 2}, {**BOTH, "recompute": "selective", "micro_batch": 8}, RING),
    "cp x replicas, ring": (
        {"cp": 2, "dp_replicate": 2}, {"recompute": "full", "micro_batch": 2}, {**RING, "cp_rotate": "alltoall"},
    ),
    "experts": (
        {"dp_shard": 4}, {"recompute": "selective", "saved_operations": "every_second_matmul+attention", "micro_batch": 2},
        {"grouped_gemm": True, "token_alignment": 8}, EXPERTS,
    ),
    "replicated experts": ({"dp_replicate": 2}, {}, {"grouped_gemm": True}, {"model": MIXTRAL}),
    "ep": ({"dp_shard": 4, "ep": 2}, {"recompute": "full"}, {"optimizer_kernel": "fused"}, EXPERTS | ADAMW),
    "ep, all ranks": ({"dp_shard": 4, "ep": 4}, {"no_sync": True}, {"grouped_gemm": True}, EXPERTS),
    "replicas x cp x ep": ({"dp_replicate": 2, "cp": 2, "ep": 2}, {"micro_batch": 2}, GATHERED, EXPERTS),
    "tp x ep": (
        {"dp_shard": 2, "tp": 2, "ep": 2}, {"sequence_parallel": True, "recompute": "full", "micro_batch": 2}, {}, EXPERTS,
    ),
    "tp with experts": ({"tp": 2}, {"micro_batch": 4}, {}, {"model": QWEN_MOE} | ADAMW),
    "pp x ep": ({"pp": 2, "dp_shard": 2, "ep": 2}, PIPELINE, {}, EXPERTS),
    "ep, selective": (
        {"dp_shard": 4, "ep": 2}, {"recompute": "selective", "saved_operations": "matmul+attention+collectives"}, {},
        {"model": STEERED},
    ),
    "lora x fsdp": ({"dp_shard": 2}, {"recompute": "selective"}, {}, LORA | ADAMW),
    "lora x ddp": ({"dp_replicate": 2}, {}, {}, LORA),
    "lora x pp x cp": ({"pp": 2, "cp": 2}, {**PIPELINE, "micro_batch": 2}, GATHERED, LORA),
    "lora x ep": ({"dp_shard": 2, "ep": 2}, {"micro_batch": 2}, {}, LORA | {"model": STEERED}),
    "lora x experts": ({"dp_shard": 2}, {"micro_batch": 2}, {}, LORA | {"model": MIXTRAL}),
    "qlora x fsdp": ({"dp_shard": 2}, {"recompute": "selective"}, {"checkpoint": "async"}, QLORA | ADAMW),
    "qlora x ddp": ({"dp_replicate": 2}, {}, {}, QLORA | {"model": BIASED}),
    "qlora x pp x cp": ({"pp": 2, "cp": 2}, {**PIPELINE, "micro_batch": 2}, GATHERED, QLORA ),
    "qlora x hsdp": ({"dp_shard": 2, "dp_replicate": 2}, {"offload": "all"}, {}, QLORA | {"model": QWEN}),
    "compiled ddp": ({"dp_replicate": 2}, {"compile": True, "micro_batch": 2}, FULLGRAPH),
    "compiled fsdp": ({"dp_shard": 2}, {"compile": True, "recompute": "full", "micro_batch": 2}, FULLGRAPH),
    "compiled fsdp, selective": ({"dp_shard": 2}, {"compile": True, "recompute": "selective", "micro_batch": 2}, FULLGRAPH),
    "compiled tp": ({"tp": 2}, {"compile": True, "micro_batch": 2, **BOTH}, FULLGRAPH),
    "compiled experts": ({"dp_shard": 2}, {"compile": True, "micro_batch": 2}, {}, EXPERTS),
    "fp16 ddp": ({"dp_replicate": 2}, {}, {}, {"precision": "fp16"}),
    "fp16 fsdp": (
        {"dp_shard": 2}, {"recompute": "full", "micro_batch": 4}, {"optimizer_kernel": "for_loop"}, {"precision": "fp16"},
    ),
    "fp16 tp": ({"tp": 2}, {"micro_batch": 4, **BOTH}, {}, {"precision": "fp16"}),
    "fp16 interleaved": (
        {"pp": 2}, {**PIPELINE, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2}, {}, {"precision": "fp16"},
    ),
    "fp16 experts": ({"dp_shard": 2, "ep": 2}, {"micro_batch": 2}, {}, EXPERTS | {"precision": "fp16"}),
    "bf16 ddp": ({"dp_replicate": 2}, {"micro_batch": 2}, {}, {"precision": "bf16"}),
    "bf16 fsdp": ({"dp_shard": 2}, {"micro_batch": 2}, {}, {"precision": "bf16"}),
    "bf16 experts": ({"dp_shard": 2}, {}, {"grouped_gemm": True, "token_alignment": 8}, EXPERTS | {"precision": "bf16"}),
    "compiled qlora": ({"dp_shard": 2}, {"compile": True, "recompute": "selective", "micro_batch": 2}, FULLGRAPH, QLORA),
    "fp16 qlora": ({"dp_shard": 2}, {"micro_batch": 4}, {}, QLORA | {"precision": "fp16"}),
    "bf16 qlora": ({"dp_shard": 2}, {"micro_batch": 2}, {}, QLORA | ADAMW | {"precision": "bf16"}),
    "bf16 lora": ({"dp_shard": 2}, {"micro_batch": 2}, {}, LORA | ADAMW | {"precision": "bf16"}),
    "bf16 lora x ddp": ({"dp_replicate": 2}, {"micro_batch": 2}, {}, LORA | ADAMW | {"precision": "bf16"}),
    "chunked loss": ({"dp_shard": 2}, {**CHUNKED, "micro_batch": 4}, {"reshard_root": True}, ADAMW),
    "chunked loss, compiled": ({"dp_shard": 2}, {**CHUNKED, "micro_batch": 2, "compile": True, "recompute": "full"}, FULLGRAPH),
    "chunked loss x cp x fsdp": ({"cp": 2, "dp_shard": 2}, {**CHUNKED, "micro_batch": 4}, GATHERED),
    "chunked loss x cp, ring": ({"cp": 2, "dp_replicate": 2}, {**CHUNKED, "micro_batch": 2}, RING),
    "chunked loss x lora": ({"dp_shard": 2}, {**CHUNKED, "micro_batch": 2}, {}, LORA | ADAMW),
    "chunked loss x qlora": ({"dp_replicate": 2}, {**CHUNKED, "micro_batch": 2}, {}, QLORA | {"precision": "bf16"}),
    "chunked loss x ddp": (
        {"dp_replicate": 2}, {**CHUNKED, "micro_batch": 2, "no_sync": True}, {}, {"precision": "bf16", "model": QWEN},
    ),
    "chunked loss x experts": ({"dp_shard": 2, "ep": 2}, {**CHUNKED, "micro_batch": 2}, {}, EXPERTS),
    "fp16 chunked loss": ({"dp_shard": 2}, {**CHUNKED, "micro_batch": 2}, {}, {"precision": "fp16"}),
    "fp16 chunked loss x ddp": ({"dp_replicate": 2}, {**CHUNKED, "micro_batch": 4}, {}, {"precision": "fp16", "model": QWEN}),
}  # fmt: skip


def planned(
    layout: dict,
    knobs: dict,
    options: dict = {},  # noqa: B006
    trained: dict = {},  # noqa: B006
) -> Plan:
    """A plan with these settings; ``trained`` replaces the default of the dense model with SGD in fp32."""
    workload_settings = {"precision": "fp32", "optimizer": "sgd", "global_batch": 8, **trained}
    model = workload_settings.pop("model", DENSE)
    devices = Layout(**layout).world_size
    workload = Workload(seq_len=64, **workload_settings)
    problem = situation(Request(model=model.name, gpus=f"{devices}xcpu", workload=workload), model)
    candidate = Candidate(layout=Layout(**layout), knobs=Knobs(**knobs), options=Options(**options))
    return price_candidate(problem, candidate, deck=deck())


@cache
def plan_of(name: str) -> Plan:
    """The plan of a case."""
    return planned(*CASES[name])


def parts_of(plan: Plan) -> set[tuple[str, ...]]:
    """The blocks and conditional lines of a plan's script, by file, block and condition, and each pair of axes of its layout."""
    known, layout, parts = conditions(plan), plan.candidate.layout, set[tuple[str, ...]]()
    for file, (_, blocks) in FILES.items():
        for block in [block for block, condition in blocks.items() if not condition or holds(condition, known)]:
            stated = [line.strip().removeprefix("# if: ") for line in block_text(file, block).splitlines() if "# if: " in line]
            parts |= {(file, block), *((file, block, condition) for condition in stated if holds(condition, known))}
    return parts | {*combinations([axis for axis in AXES if getattr(layout, axis) > 1], 2)}


def rate(plan: Plan) -> float:
    """The learning rate of a case: large for SGD, so that every gradient matters."""
    return 1.0 if plan.workload.optimizer == "sgd" else 1e-3


def exported(plan: Plan, folder: Path, changes: dict[str, str] = {}) -> tuple[str, ...]:  # noqa: B006
    """Writes the files of a plan, with some texts replaced, and returns the command that starts them."""
    folder.mkdir(parents=True)
    written = write(plan, {})
    replaced = {"LEARNING_RATE = 0.0001": f"LEARNING_RATE = {rate(plan)}", **changes}
    for file in written.files:
        text = file.text
        for old, new in replaced.items():
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    return written.command


Figures = list[tuple[float, float]]
"""Loss and norm of the gradient of each step."""


def trained(plan: Plan, folder: Path, *arguments: str, changes: dict[str, str] = {}) -> Figures:  # noqa: B006
    """The figures that the script of a plan prints. torch's ring attention supports CUDA kernels only, so a CPU kernel is
    registered; compiled layers are traced and run by torch's eager kernels.
    """
    compiler = {"fullgraph=FULLGRAPH)": "fullgraph=FULLGRAPH, backend='aot_eager')"}
    exported(plan, folder, {**compiler, **changes})
    ring = plan.candidate.layout.cp > 1 and plan.candidate.options.cp_attention == "sdpa"
    script = ["formats.script_rank", *(["ring"] if ring else []), "train.py", *arguments]
    done = forked(plan.cluster.devices, script, place=folder, **NO_COMPILER)
    assert done.returncode == 0, done.stderr[-3000:]
    return figures_in(done.stdout)


def figures_in(text: str) -> Figures:
    """Loss and gradient norm of each step that a script printed."""
    lines = [line.split() for line in text.splitlines() if line.startswith("step ")]
    return [(float(words[3]), float(words[5])) for words in lines]


def run_alone(trained: dict, folder: Path, steps: int = STEPS, **settings: object) -> Figures:
    """The figures of ``strategist run`` in one process."""
    plan = planned({}, {"micro_batch": 4}, {}, trained)
    folder.mkdir(parents=True)
    trial_settings = TrialSettings(steps=steps, warmup_steps=0, learning_rate=rate(plan), **settings)  # type: ignore[arg-type]
    done = forked(1, trial_arguments(plan, folder, trial_settings))
    assert done.returncode == 0, done.stderr[-3000:]
    [record] = records(folder)
    return list(zip(record.losses, record.grad_norms, strict=True))
