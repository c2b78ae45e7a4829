"""Cases with stages streamed from host memory: two rounds, ranks with unequal numbers of stages, and one rank with all stages."""

from collections.abc import Callable, Iterator

from strategist.contract.plan import Plan


def cases(case: Callable[..., tuple[str, Plan]]) -> Iterator[tuple[str, Plan]]:
    """``case`` builds a named plan from settings."""
    streamed = {"offload": "streamed", "recompute": "full", "pp_schedule": "gpipe"}
    yield case("streamed alone", **streamed, micro_batch=2)
    yield case("streamed 2", pp=2, **streamed, micro_batch=2, model="deep")
    yield case("streamed 2 tied", pp=2, **streamed, micro_batch=4, model="qwen deep")
    yield case("streamed 4 sgd", pp=4, **streamed, micro_batch=1, model="deep", optimizer="sgd")
    yield case("compile streamed 2", pp=2, **streamed, micro_batch=2, model="deepest", compile=True, fullgraph=True)
    yield case("bf16-true streamed 2", pp=2, **streamed, micro_batch=2, model="deep", precision="bf16-true")
    yield case("bf16 streamed 2", pp=2, **streamed, micro_batch=2, model="deep", precision="bf16")
