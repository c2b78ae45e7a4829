"""Change: one change of a request."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from strategist.contract.plan import Plan
from strategist.frozen import frozen
from strategist.profiles.situation import Situation


@frozen
class Change:
    """One change of a request.

    situations: possible results; the first in which something fits is taken.
    title, flags, note: what the change is called, the options that request it, and why it may help.
    gain: least throughput, relative to the best plan's, with which the change is worth naming.
    resolve: turns a situation and its plan into the situation that the flags request, if only the plan tells how much is needed.
    """

    situations: Iterator[Situation]
    title: Callable[[Situation], str]
    flags: Callable[[Situation, Plan], tuple[str, ...]]
    note: str = ""
    changes_convergence: bool = False
    gain: float = 0.0
    resolve: Callable[[Situation, Plan], Situation] = lambda found, _: found


def with_request(situation: Situation, **request: object) -> Situation:
    """The situation with some fields of its request replaced."""
    return replace(situation, request=replace(situation.request, **request))  # type: ignore[arg-type]


def with_workload(situation: Situation, **workload: object) -> Situation:
    """The situation with some fields of its workload replaced."""
    return with_request(situation, workload=replace(situation.request.workload, **workload))  # type: ignore[arg-type]
