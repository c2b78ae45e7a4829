"""Cases with mixture-of-experts models: softmax routing with an auxiliary loss, and grouped sigmoid routing with balance biases."""

from collections.abc import Iterator
from dataclasses import fields, replace

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import MoEShape
from strategist.contract.options import OPTION_NAMES, Options
from strategist.contract.plan import Plan

from .plans import TINY, WORKLOAD, plan, two_micro_batches

SOFTMAX = MoEShape(experts=8, experts_per_token=2, expert_ffn_size=24, balance_coefficient=0.1)
SIGMOID = MoEShape(
    experts=8,
    experts_per_token=3,
    expert_ffn_size=20,
    shared_experts=2,
    first_dense_layers=1,
    router_balance_bias=True,
    router_score="sigmoid",
    router_groups=4,
    router_groups_per_token=2,
    routed_scale=2.5,
)
MODELS = {
    "experts": replace(TINY, name="experts", kv_heads=2, moe=SOFTMAX),
    "experts sigmoid": replace(TINY, name="experts sigmoid", layers=5, moe=SIGMOID),
}
BALANCE = {"experts": "auxiliary_loss", "experts sigmoid": "bias"}
DEGREES = tuple(field.name for field in fields(Layout))


def _case(name: str, model: str = "experts", precision: str = "fp32", **settings: object) -> tuple[str, Plan]:
    layout = Layout(**{key: settings.pop(key) for key in DEGREES if key in settings})
    options = Options(expert_balance=BALANCE[model], **{key: settings.pop(key) for key in OPTION_NAMES if key in settings})
    chosen = {"micro_batch": two_micro_batches(layout), **settings}
    workload = replace(WORKLOAD, precision=precision)
    return name, plan(layout=layout, knobs=Knobs(**chosen), options=options, model=MODELS[model], workload=workload)


def cases() -> Iterator[tuple[str, Plan]]:
    """All cases, on two to eight ranks."""
    for model in MODELS:
        yield _case(f"reference {model} adamw", model=model, micro_batch=8)
    sigmoid = {"model": "experts sigmoid"}
    kernel = {"grouped_gemm": True, "token_alignment": 8}
    postponed = {"no_sync": True}
    yield _case("experts ddp grouped", dp_replicate=2, **kernel, **postponed)
    yield _case("experts fsdp", dp_shard=2, recompute="selective")
    yield _case("experts fsdp sigmoid grouped", dp_shard=2, **sigmoid, **kernel, recompute="full")
    yield _case("experts host updates", micro_batch=1, offload="optimizer", optimizer_in_backward=True)
    yield _case("experts ep 2", dp_shard=2, ep=2)
    yield _case("experts ep 2 sigmoid full", dp_shard=2, ep=2, **sigmoid, recompute="full", **postponed)
    yield _case("experts ep 2 grouped selective", dp_shard=2, ep=2, **kernel, recompute="selective", micro_batch=1)
    yield _case("experts streamed", pp=2, **kernel, offload="streamed", recompute="full", pp_schedule="gpipe")
    yield _case("experts ep 2 fsdp 4", dp_shard=4, ep=2, **sigmoid, **postponed, reshard_after_forward=False)
    yield _case("experts ep 4 of 4 prefetch", dp_shard=4, ep=4, **sigmoid, **kernel, prefetch_units=2)
    yield _case("experts tp", tp=2, **sigmoid)
    yield _case("experts tp sequence", tp=2, sequence_parallel=True, loss_parallel=True)
    yield _case("experts tp etp", tp=2, etp=2, **sigmoid)
    both = {"sequence_parallel": True, "loss_parallel": True}
    yield _case("experts ep 4 tp 2", dp_shard=2, tp=2, ep=4)
    yield _case("experts ep 4 tp 2 sequence", dp_shard=2, tp=2, ep=4, **both, **sigmoid, recompute="full", **kernel)
    yield _case("experts ep 2 tp 2 etp 2", dp_shard=2, tp=2, ep=2, etp=2, **sigmoid, **postponed)
    yield _case(
        "experts ep 2 tp 2 etp 2 sequence",
        dp_shard=2,
        tp=2,
        ep=2,
        etp=2,
        **both,
        recompute="selective",
        saved_operations="attention+collectives",
    )
    yield _case("experts ep 2 hsdp", dp_replicate=2, dp_shard=2, ep=2, **postponed)
    yield _case("experts cp ep 2", cp=2, dp_shard=2, ep=2)
    pipe = {"pp": 2, "dp_shard": 2, "ep": 2, **postponed, "micro_batch": 1}
    v = {"pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False}
    yield _case("experts pp ep 2 zero bubble", **pipe, **sigmoid, **v)
    yield _case(
        "experts pp ep 2 interleaved", **pipe, **sigmoid, pp_schedule="interleaved_1f1b", pp_virtual_stages=2, recompute="full"
    )
    yield _case("experts all", pp=2, dp_shard=2, tp=2, ep=2, etp=2, **both, **postponed)
    yield _case("experts all bias", pp=2, dp_shard=2, tp=2, ep=2, **both, **postponed, **sigmoid, **kernel)
    whole = {"compile": True, "fullgraph": True}
    second = {"recompute": "selective", "saved_operations": "every_second_matmul+attention+collectives"}
    yield _case("experts compile ep 2 selective", dp_shard=2, ep=2, **whole, **kernel, **second)
    yield _case("experts compile tp etp", tp=2, etp=2, **whole, **both, **sigmoid, recompute="full")
    yield _case("bf16 experts ep 2", dp_shard=2, ep=2, precision="bf16", **kernel)
    yield _case("bf16 experts ddp", dp_replicate=2, precision="bf16", **kernel)
