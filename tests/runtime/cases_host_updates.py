"""The host's updates beside the backward pass; with several micro-batches a step, after the last gradient of each parameter."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` makes a named plan from settings."""
    beside = {"optimizer_in_backward": True, "offload": "optimizer"}
    everything = {"optimizer_in_backward": True, "offload": "all"}
    yield case("beside alone tied", **beside, model="qwen")
    yield case("beside alone all", **everything)
    yield case("beside ddp", dp_replicate=2, **beside, micro_batch=1, gradient_as_bucket_view=True)
    yield case("beside ddp postponed", dp_replicate=2, **beside, micro_batch=1, no_sync=True)
    yield case("beside fsdp", dp_shard=2, **beside, micro_batch=1, reshard_after_forward=False, optimizer_kernel="fused")
    yield case("beside fsdp postponed", dp_shard=2, **beside, micro_batch=1, no_sync=True)
    yield case("beside fsdp all", dp_shard=2, **everything, micro_batch=1, optimizer_kernel="fused")
    yield case("beside fsdp tied", dp_shard=2, **beside, micro_batch=4, model="qwen deep", recompute="full")
    yield case("beside fsdp adamw_bf16", dp_shard=2, **beside, optimizer="adamw_bf16")
    yield case("beside tp", tp=2, **beside)
    yield case("beside hsdp", dp_replicate=2, dp_shard=2, **beside, micro_batch=1)
