"""Cases with activation offload, which applies to all layers except the last, so models are deep."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` builds a named plan from settings."""
    offloaded = {"activation_offload": True, "model": "deep", "micro_batch": 2}
    tensor = {"tp": 2, "sequence_parallel": True, "loss_parallel": True}
    yield case("activations alone", **offloaded)
    yield case("activations alone selective", **offloaded, recompute="selective")
    yield case("activations ddp", **offloaded, dp_replicate=2, precision="bf16")
    yield case("activations fsdp offload all", **offloaded, dp_shard=2, offload="all", pin_memory=False)
    kept = {"reshard_after_forward": False, "recompute": "selective"}
    yield case("activations fsdp kept selective bf16", **offloaded, dp_shard=2, **kept, precision="bf16")
    yield case("activations tp", **offloaded, tp=2, recompute="full")
    yield case("activations tp sp selective", **offloaded, **tensor, recompute="selective")
    yield case("activations compiled", **offloaded, dp_shard=2, compile=True)
    yield case("activations cp", **offloaded, cp=2)
    yield case("activations pp", **offloaded, pp=2, pp_schedule="1f1b")
    yield case("activations pp fsdp recompute full", **offloaded, pp=2, dp_shard=2, no_sync=True, recompute="full")
    yield case("activations fsdp tp sp", **offloaded, **tensor, dp_shard=2)
