"""Activations that wait in host memory: of all layers but the last, so models are deep."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` makes a named plan from settings."""
    away = {"activation_offload": True, "model": "deep", "micro_batch": 2}
    tensor = {"tp": 2, "sequence_parallel": True, "loss_parallel": True}
    yield case("activations alone", **away)
    yield case("activations alone selective", **away, recompute="selective")
    yield case("activations ddp", **away, dp_replicate=2, precision="bf16")
    yield case("activations fsdp offload all", **away, dp_shard=2, offload="all", pin_memory=False)
    kept = {"reshard_after_forward": False, "recompute": "selective"}
    yield case("activations fsdp kept selective bf16", **away, dp_shard=2, **kept, precision="bf16")
    yield case("activations tp", **away, tp=2, recompute="full")
    yield case("activations tp sp selective", **away, **tensor, recompute="selective")
    yield case("activations compiled", **away, dp_shard=2, compile=True)
    yield case("activations cp", **away, cp=2)
    yield case("activations pp", **away, pp=2, pp_schedule="1f1b")
    yield case("activations pp fsdp recompute full", **away, pp=2, dp_shard=2, no_sync=True, recompute="full")
    yield case("activations fsdp tp sp", **away, **tensor, dp_shard=2)
