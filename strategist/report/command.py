"""The command that reproduces a request."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from strategist.contract.knobs import show_value
from strategist.contract.request import Request
from strategist.contract.workload import Workload

if TYPE_CHECKING:
    from strategist.contract.goals import Goals  # and what is measured, of which an answer says nothing

COUNTS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
BYTES = {"B": 1, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
OPTIONS = ("seq_len", "global_batch", "document_tokens", "train", "lora_rank", "optimizer", "precision")
"""Fields of the workload that are command-line options."""


def plan_command(request: Request) -> tuple[str, ...]:
    """``strategist plan`` with the options of the request."""
    return _command("plan", request)


def tune_command(request: Request, goals: "Goals", study: str, trials: int) -> tuple[str, ...]:
    """``strategist tune``, which continues a study up to ``trials`` trials."""
    return (*_command("tune", request), *_goal_options(goals), "--study", study, "--trials", str(trials))


def _goal_options(goals: "Goals") -> Iterator[str]:
    if goals.several:
        yield from ("--pareto", ",".join(goals.objectives[1:]))
    min_rate, max_cost = goals.least_tokens_per_second, goals.most_cost
    for name, value in (("headroom", goals.headroom or None), ("least-tokens-per-second", min_rate), ("most-cost", max_cost)):
        if value is not None:
            yield from (f"--{name}", _without_exponent(value))


def _without_exponent(value: float) -> str:
    """A number without exponent, as options take it."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def _in_largest_unit(value: int, units: Mapping[str, int]) -> str:
    """A number in the largest unit in which it is whole, such as 32k."""
    unit = max((unit for unit, size in units.items() if value % size == 0), key=lambda unit: units[unit])
    return f"{value // units[unit]}{unit}"


def _command(name: str, request: Request) -> tuple[str, ...]:
    defaults = Request(model=request.model, gpus=request.gpus)
    return ("strategist", name, "--model", request.model, "--gpus", request.gpus, *_options(request, defaults))


def _options(request: Request, defaults: Request) -> Iterator[str]:
    yield from _workload(request.workload, defaults.workload)
    for name in ("objective", "confidence", "backend", "tokens"):
        if (value := getattr(request, name)) != getattr(defaults, name):
            yield from (f"--{name}", _in_largest_unit(value, COUNTS) if name == "tokens" else str(value))
    if request.host_memory_bytes is not None:
        yield from ("--host-memory", _in_largest_unit(request.host_memory_bytes, BYTES))
    if request.node_seconds_between_failures is not None:
        yield from ("--node-failures", _without_exponent(request.node_seconds_between_failures) + "s")
    if request.price_per_hour is not None:
        yield from ("--price", _without_exponent(request.price_per_hour))
    if request.allow:
        yield from ("--allow", ",".join(request.allow))
    for card in request.without:
        yield from ("--without", card)
    for name, value in request.fix.items():
        yield from ("--fix", f"{name}={show_value(value)}")


def _workload(workload: Workload, defaults: Workload) -> Iterator[str]:
    for name in OPTIONS:
        if (value := getattr(workload, name)) != getattr(defaults, name):
            yield from (f"--{name.replace('_', '-')}", str(value))
