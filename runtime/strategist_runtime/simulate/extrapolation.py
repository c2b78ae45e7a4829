"""A step of many equal layers and micro-batches, from steps of a few: every figure grows by as much with each further one, once
there are enough of them. A step of more than those that it is extended from shows whether that is so."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from strategist_runtime.simulate.timeline import MemorySnapshot, Timeline
from strategist_runtime.simulate.traced_step import Traced


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """Size of a step: periods of equal layers in the middle of each stage, and micro-batches."""

    middle: int
    micro_batches: int


Repeat = Callable[[Timeline, Timeline, StepSize, int], Timeline]
WORTH = 12
"""Periods of layers from which on three short traces, each with the ends of its stages, take less time than a whole one."""

Weighted = Sequence[tuple[float, Traced]]
Name = TypeVar("Name", bound=Hashable)


def extrapolated(
    whole: StepSize,
    least: StepSize,
    rounds: int,
    trace: Callable[[StepSize], Traced],
    repeat: Repeat = lambda timeline, *_: timeline,
) -> Traced:
    """What a ``whole`` step shows. Where it is large, steps are traced from ``least`` on, micro-batches in ``rounds``; where they
    show that it does not grow evenly, the whole step. ``repeat`` gives a timeline, which one with a period less stands beside, of
    a step of this size so many periods more; those of more micro-batches are none."""
    wider = int(whole.middle > least.middle + WORTH)
    longer = rounds if whole.micro_batches > 3 * (least.micro_batches + rounds) else 0
    if not wider and not longer:
        return trace(whole)
    start = StepSize(
        middle=least.middle if wider else whole.middle,
        micro_batches=least.micro_batches if longer else whole.micro_batches,
    )

    def size(across: int, down: int) -> StepSize:
        return StepSize(middle=start.middle + across * wider, micro_batches=start.micro_batches + down * longer)

    corners = {
        (across, down): trace(size(across, down)) for across in range(2 if wider else 1) for down in range(2 if longer else 1)
    }
    shown = trace(size(2, 2))
    if not _alike(_away(corners, 2, 2), shown):
        return trace(whole)
    across, down = whole.middle - start.middle, (whole.micro_batches - start.micro_batches) / longer if longer else 0.0
    timeline = repeat(shown.timeline, corners[1, 0].timeline, size(2, 2), across - 2) if wider else shown.timeline
    return replace(_away(corners, across, down), timeline=timeline)


def _away(corners: Mapping[tuple[int, int], Traced], across: float, down: float) -> Traced:
    """The step that lies so many steps of layers and of micro-batches away from the first corner."""
    share = {0: (1.0,), 1: (1.0 - across, across)}[max(x for x, _ in corners)]
    part = {0: (1.0,), 1: (1.0 - down, down)}[max(y for _, y in corners)]
    return _sum([(share[x] * part[y], step) for (x, y), step in corners.items()])


def _sum(steps: Weighted) -> Traced:
    """Every figure as the sum of that of the steps, weighted; of moments that all of them have."""
    common = [moment for moment in steps[0][1].instants if all(moment in step.instants for _, step in steps)]
    return Traced(
        instants={
            moment: MemorySnapshot(
                parts=_each([(weight, step.instants[moment].parts) for weight, step in steps]),
                modules=_each([(weight, step.instants[moment].modules) for weight, step in steps]),
            )
            for moment in common
        },
        calls=_each([(weight, step.calls) for weight, step in steps]),
        message_bytes=_each([(weight, step.message_bytes) for weight, step in steps]),
        flops=round(sum(weight * step.flops for weight, step in steps)),
        between_steps_bytes=round(sum(weight * step.between_steps_bytes for weight, step in steps)),
        host_bytes=round(sum(weight * step.host_bytes for weight, step in steps)),
    )


def _each(figures: Sequence[tuple[float, Mapping[Name, int]]]) -> dict[Name, int]:
    sums: defaultdict[Name, float] = defaultdict(float)
    for weight, named in figures:
        for name, value in named.items():
            sums[name] += weight * value
    return {name: round(value) for name, value in sums.items()}


def _alike(expected: Traced, found: Traced) -> bool:
    """Whether two steps show the same, as far as memory goes by moment."""
    peaks = all(found.instants[moment].memory_bytes == instant.memory_bytes for moment, instant in expected.instants.items())
    return peaks and (expected.calls, expected.message_bytes, expected.flops) == (found.calls, found.message_bytes, found.flops)
