"""The command line that asks for a request."""

from collections.abc import Iterator

from strategist.contract.knobs import show_value
from strategist.contract.request import Request
from strategist.contract.workload import Workload

OPTIONS = ("seq_len", "global_batch", "document_tokens", "train", "optimizer", "precision")
"""Fields of the workload that are options."""


def plan_command(request: Request) -> tuple[str, ...]:
    """``strategist plan`` with the options of the request; empty where it says what only a request file can."""
    plain = Request(model=request.model, gpus=request.gpus)
    if request.workload.lora_rank != plain.workload.lora_rank:
        return ()
    return ("strategist", "plan", "--model", request.model, "--gpus", request.gpus, *_options(request, plain))


def _options(request: Request, plain: Request) -> Iterator[str]:
    yield from _workload(request.workload, plain.workload)
    for name in ("objective", "confidence", "backend", "tokens"):
        if (value := getattr(request, name)) != getattr(plain, name):
            yield from (f"--{name}", str(value))
    if request.host_memory_bytes is not None:
        yield from ("--host-memory", f"{request.host_memory_bytes}B")
    if request.node_seconds_between_failures is not None:
        yield from ("--node-failures", f"{request.node_seconds_between_failures!r}s")
    if request.price_per_hour is not None:
        yield from ("--price", repr(request.price_per_hour))
    if request.allow:
        yield from ("--allow", ",".join(request.allow))
    for name, value in request.fix.items():
        yield from ("--fix", f"{name}={show_value(value)}")


def _workload(workload: Workload, plain: Workload) -> Iterator[str]:
    for name in OPTIONS:
        if (value := getattr(workload, name)) != getattr(plain, name):
            yield from (f"--{name.replace('_', '-')}", str(value))
