"""Cases with selective recomputation: groups of saved operations, eager and compiled, with collectives and with experts."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` builds a named plan from settings."""
    second, none = "every_second_matmul+attention+collectives", "attention"
    both = {"sequence_parallel": True, "loss_parallel": True, "recompute": "selective"}
    yield case("saved fsdp tp second", dp_shard=2, tp=2, **both, saved_operations=second)
    yield case("saved tp attention", tp=2, recompute="selective", saved_operations=f"{none}+collectives", model="qwen")
    compiled = {"compile": True, "fullgraph": True, "recompute": "selective"}
    yield case("saved compile tp second", tp=2, **compiled, sequence_parallel=True, saved_operations=second)
