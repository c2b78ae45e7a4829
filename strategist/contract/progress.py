"""Progress of long work: workers update it, and a view can display it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from strategist.frozen import frozen

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Stage:
    """One unit of work in progress: ``done`` of ``total`` parts; ``units`` names the parts, in the plural; ``note`` has more text,
    such as the remaining time.
    """

    units: str
    total: int
    done: int = 0
    note: str = ""
    begun: float = field(default_factory=time.monotonic)


_STAGES: list[Stage] = []


def under_way() -> tuple[Stage, ...]:
    """Work in progress, outermost first."""
    return tuple(_STAGES)


@contextmanager
def stage(units: str, total: int) -> Iterator[Stage]:
    """Context manager: registers work of ``total`` parts; the caller increments ``done``."""
    work = Stage(units=units, total=total)
    _STAGES.append(work)
    try:
        yield work
    finally:
        _STAGES.remove(work)


def counted(items: Sequence[T], units: str) -> Iterator[T]:
    """The items one by one; each counts as done when the next one is requested."""
    with stage(units, len(items)) as work:
        for item in items:
            yield item
            work.done += 1


def share_done(stages: Sequence[Stage]) -> float:
    """Completed share (0 to 1) of the first stage, with the share of nested stages added; parts count as equal."""
    share = 0.0
    for each in reversed(stages):
        share = min(1.0, (each.done + share) / each.total) if each.total else 0.0
    return share


@frozen
class Progress:
    """Progress of a running trial.

    phase: of the rank that is furthest behind.
    step: last step that rank 0 finished.
    step_seconds: of the latest steps after warm-up.
    latest: figures of rank 0 by name: loss, grad_norm, evaluation_loss, seconds of the step, memory_bytes of its device.
    """

    phase: str
    step: int | None
    elapsed_seconds: float
    step_seconds: tuple[float, ...] = ()
    latest: dict[str, float] = field(default_factory=dict)
