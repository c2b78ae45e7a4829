"""Progress of long work: the work reports it, a view may display it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Stage:
    """``done`` of ``total`` parts of some work; ``what`` they are, in the plural; ``note`` says more, the time left included."""

    what: str
    total: int
    done: int = 0
    note: str = ""
    begun: float = field(default_factory=time.monotonic)


_STAGES: list[Stage] = []


def under_way() -> tuple[Stage, ...]:
    """What is being done, the whole before its parts."""
    return tuple(_STAGES)


@contextmanager
def stage(what: str, total: int) -> Iterator[Stage]:
    """Work of so many parts, each of which counts itself in ``done``."""
    own = Stage(what=what, total=total)
    _STAGES.append(own)
    try:
        yield own
    finally:
        _STAGES.remove(own)


def counted(items: Sequence[T], what: str) -> Iterator[T]:
    """The items one by one, each done when the next is asked for."""
    with stage(what, len(items)) as own:
        for item in items:
            yield item
            own.done += 1


def share_done(stages: Sequence[Stage]) -> float:
    """Of the first of the stages, as far as all of them tell; parts are taken to be alike."""
    share = 0.0
    for each in reversed(stages):
        share = min(1.0, (each.done + share) / each.total) if each.total else 0.0
    return share


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a running trial is: the phase of the rank that is furthest behind, the last step that rank 0 finished, and what the
    latest steps after warm-up took. ``latest`` are figures of rank 0 by name: loss, grad_norm, evaluation_loss, the seconds of the
    step, memory_bytes of its device."""

    phase: str
    step: int | None
    elapsed_seconds: float
    step_seconds: tuple[float, ...] = ()
    latest: dict[str, float] = field(default_factory=dict)
