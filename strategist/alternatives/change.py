"""Change: one change of a request, as a value."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from strategist.contract.plan import Plan
from strategist.profiles.situation import Situation


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change: the situations that it may lead to, first that works wins, and how to say it.

    ``gain`` is the throughput over the best plan's from which on the change is worth naming. ``resolve`` turns a situation and
    its plan into the situation that the flags ask for, where only the plan says how much is needed.
    """

    situations: Iterator[Situation]
    title: Callable[[Situation], str]
    flags: Callable[[Situation, Plan], tuple[str, ...]]
    note: str = ""
    changes_convergence: bool = False
    gain: float = 0.0
    resolve: Callable[[Situation, Plan], Situation] = lambda found, _: found


def with_request(asked: Situation, **request: object) -> Situation:
    """The situation with some fields of its request otherwise."""
    return replace(asked, request=replace(asked.request, **request))  # type: ignore[arg-type]


def with_workload(asked: Situation, **workload: object) -> Situation:
    """The situation with some fields of its workload otherwise."""
    return with_request(asked, workload=replace(asked.request.workload, **workload))  # type: ignore[arg-type]
