"""Cases with optimizer updates on the host during the backward pass; with gradient accumulation after the last gradient of each
parameter.
"""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` builds a named plan from settings."""
    host_updates = {"optimizer_in_backward": True, "offload": "optimizer"}
    everything = {"optimizer_in_backward": True, "offload": "all"}
    yield case("host updates alone tied", **host_updates, model="qwen")
    yield case("host updates alone all", **everything)
    yield case("host updates ddp", dp_replicate=2, **host_updates, micro_batch=1, gradient_as_bucket_view=True)
    yield case("host updates ddp no_sync", dp_replicate=2, **host_updates, micro_batch=1, no_sync=True)
    yield case(
        "host updates fsdp", dp_shard=2, **host_updates, micro_batch=1, reshard_after_forward=False, optimizer_kernel="fused"
    )
    yield case("host updates fsdp no_sync", dp_shard=2, **host_updates, micro_batch=1, no_sync=True)
    yield case("host updates fsdp all", dp_shard=2, **everything, micro_batch=1, optimizer_kernel="fused")
    yield case("host updates fsdp tied", dp_shard=2, **host_updates, micro_batch=4, model="qwen deep", recompute="full")
    yield case("host updates fsdp adamw_bf16", dp_shard=2, **host_updates, optimizer="adamw_bf16")
    yield case("host updates tp", tp=2, **host_updates)
    yield case("host updates hsdp", dp_replicate=2, dp_shard=2, **host_updates, micro_batch=1)
