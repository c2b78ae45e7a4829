"""Cases with precisions, optimizers, offload and gradient compression; compared with tolerances if values are rounded."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan

from .cases_experts import MODELS
from .plans import WORKLOAD, plan

Case = Callable[..., tuple[str, Plan]]
SHARDED = {"dp_shard": 2, "tp": 2, "sequence_parallel": True, "loss_parallel": True}
OFTEN = {"micro_batch": 1}
VIEWS = {"gradient_as_bucket_view": True, "bucket_cap_mb": 1}
ONE_MICRO_BATCH = {"micro_batch": 4}
"""One micro-batch per step on two data-parallel ranks."""


def references(case: Case) -> Iterator[tuple[str, Plan]]:
    """References for optimizers that only these cases use."""
    for optimizer in ("adamw_bf16", "muon"):
        yield case(f"reference tiny {optimizer}", optimizer=optimizer, micro_batch=8)
    yield case("reference tiny adamw clipped", micro_batch=8)
    yield case("reference tiny sgd clipped", optimizer="sgd", micro_batch=8)
    yield _experts("reference experts sgd clipped", Layout(), micro_batch=8)


def cases(case: Case) -> Iterator[tuple[str, Plan]]:
    """All cases."""
    yield from references(case)
    yield from _types(case)
    yield from _optimizers(case)
    yield from _offloaded(case)
    yield case("sgd clipped fsdp tp", **SHARDED, optimizer="sgd")
    yield case("sgd clipped pp fsdp", pp=2, dp_shard=2, **OFTEN, no_sync=True, optimizer="sgd")
    yield _experts("sgd clipped ep tp", Layout(dp_shard=2, tp=2, ep=2), micro_batch=2)
    yield _experts("fp16 auxiliary loss", Layout(dp_shard=2, ep=2), micro_batch=2, precision="fp16", optimizer="adamw")
    for hook in ("fp16", "bf16", "powersgd"):
        yield case(f"ddp hook {hook}", dp_replicate=2, comm_hook=hook)


def _experts(name: str, layout: Layout, micro_batch: int, optimizer: str = "sgd", precision: str = "fp32") -> tuple[str, Plan]:
    """A model whose experts are on another mesh than the other parameters."""
    workload, knobs = replace(WORKLOAD, optimizer=optimizer, precision=precision), Knobs(micro_batch=micro_batch)
    return name, plan(layout=layout, knobs=knobs, model=MODELS["experts"], workload=workload)


def _types(case: Case) -> Iterator[tuple[str, Plan]]:
    for precision in ("fp16", "bf16-true"):
        yield case(f"{precision} ddp", dp_replicate=2, **OFTEN, precision=precision)
        yield case(f"{precision} pp", pp=2, precision=precision)
        yield case(f"{precision} fsdp tp", **SHARDED, **OFTEN, precision=precision, recompute="selective")
    yield case("fp16 pp zero bubble", pp=2, precision="fp16", model="deep", pp_schedule="zbv_zero_bubble", pp_virtual_stages=2)
    yield case("float8 tensorwise fsdp", dp_shard=2, precision="bf16", float8="tensorwise", float8_all_gather=True)
    yield case("float8 rowwise fsdp", dp_shard=2, precision="bf16", float8="rowwise", recompute="full")
    yield case("float8 tensorwise fsdp tp", **SHARDED, precision="bf16", float8="tensorwise", model="wide")


def _optimizers(case: Case) -> Iterator[tuple[str, Plan]]:
    yield case("adamw_bf16 fsdp tp", **SHARDED, optimizer="adamw_bf16")
    yield case("adamw_bf16 pp", pp=2, optimizer="adamw_bf16", optimizer_kernel="fused")
    yield case("muon fsdp tp", **SHARDED, optimizer="muon")
    yield case("muon pp", pp=2, optimizer="muon")
    yield case("in backward ddp", dp_replicate=2, **ONE_MICRO_BATCH, optimizer_in_backward=True)
    yield case(
        "in backward ddp views hook", dp_replicate=2, **ONE_MICRO_BATCH, optimizer_in_backward=True, comm_hook="bf16", **VIEWS
    )
    yield case(
        "in backward fsdp", dp_shard=2, **ONE_MICRO_BATCH, optimizer_in_backward=True, optimizer_kernel="fused", recompute="full"
    )
    streamed = {"pp": 2, "offload": "streamed", "recompute": "full", "pp_schedule": "gpipe", "optimizer_in_backward": True}
    yield case("in backward streamed", **streamed, micro_batch=1, model="deep")
    yield case("in backward streamed tied", **streamed, micro_batch=2, model="qwen deep")
    yield case("in backward fsdp tp", dp_shard=2, tp=2, **ONE_MICRO_BATCH, optimizer_in_backward=True)


def _offloaded(case: Case) -> Iterator[tuple[str, Plan]]:
    yield case("offload all ddp", dp_replicate=2, offload="all", optimizer_kernel="fused")
    yield case("offload all fsdp", dp_shard=2, **OFTEN, offload="all", pin_memory=False)
    yield case("offload all hsdp", dp_replicate=2, dp_shard=2, offload="all", no_sync=True, **OFTEN)
    yield case("offload all clipped fsdp tp", **SHARDED, offload="all", optimizer_kernel="fused")
    yield case("offload all pp", pp=2, offload="all", no_sync=True)
    yield case("offload optimizer ddp", dp_replicate=2, **OFTEN, offload="optimizer", no_sync=True)
    yield case("offload optimizer clipped fsdp tp", **SHARDED, **OFTEN, offload="optimizer", optimizer_kernel="fused")
    yield case("offload optimizer pp fsdp", pp=2, dp_shard=2, **OFTEN, offload="optimizer", no_sync=True)
