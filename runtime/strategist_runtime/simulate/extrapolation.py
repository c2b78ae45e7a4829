"""A step of many equal layers and micro-batches, extrapolated from smaller steps: from some size on, every figure grows linearly
with both. A further, larger trace checks this.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from strategist_runtime.simulate.timeline import MemorySnapshot, Timeline
from strategist_runtime.simulate.traced_step import Traced


@dataclass(frozen=True, kw_only=True)
class StepSize:
    """Size of a step: ``middle`` periods of equal layers in the middle of each stage, and micro-batches."""

    middle: int
    micro_batches: int


Repeat = Callable[[Timeline, Timeline, StepSize, int], Timeline]
MIN_PERIODS = 12
"""Number of periods of layers from which three small traces take less time than a whole one."""

Weighted = Sequence[tuple[float, Traced]]
Name = TypeVar("Name", bound=Hashable)


def extrapolated(
    whole: StepSize,
    least: StepSize,
    rounds: int,
    trace: Callable[[StepSize], Traced],
    repeat: Repeat = lambda timeline, *_: timeline,
) -> Traced:
    """The figures of a step of size ``whole``.

    A large step is extrapolated from traces of size ``least`` and slightly larger ones, with micro-batches in multiples of
    ``rounds``. If they show that figures do not grow linearly, the whole step is traced. ``repeat`` extends a timeline, given
    one with a period less, the size of its step and the number of further periods; micro-batches are not added to timelines.
    """
    wider = int(whole.middle > least.middle + MIN_PERIODS)
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
    if not _alike(_extrapolated_step(corners, 2, 2), shown):
        return trace(whole)
    across, down = whole.middle - start.middle, (whole.micro_batches - start.micro_batches) / longer if longer else 0.0
    timeline = repeat(shown.timeline, corners[1, 0].timeline, size(2, 2), across - 2) if wider else shown.timeline
    return replace(_extrapolated_step(corners, across, down), timeline=timeline)


def _extrapolated_step(corners: Mapping[tuple[int, int], Traced], across: float, down: float) -> Traced:
    """The step extrapolated ``across`` steps of layers and ``down`` steps of micro-batches from the first corner."""
    share = {0: (1.0,), 1: (1.0 - across, across)}[max(x for x, _ in corners)]
    part = {0: (1.0,), 1: (1.0 - down, down)}[max(y for _, y in corners)]
    return _sum([(share[x] * part[y], step) for (x, y), step in corners.items()])


def _sum(steps: Weighted) -> Traced:
    """The weighted sum of all figures of the steps; of moments that all steps have."""
    common = [moment for moment in steps[0][1].instants if all(moment in step.instants for _, step in steps)]
    return Traced(
        instants={
            moment: MemorySnapshot(
                parts=_weighted_sums([(weight, step.instants[moment].parts) for weight, step in steps]),
                modules=_weighted_sums([(weight, step.instants[moment].modules) for weight, step in steps]),
            )
            for moment in common
        },
        calls=_weighted_sums([(weight, step.calls) for weight, step in steps]),
        message_bytes=_weighted_sums([(weight, step.message_bytes) for weight, step in steps]),
        flops=round(sum(weight * step.flops for weight, step in steps)),
        between_steps_bytes=round(sum(weight * step.between_steps_bytes for weight, step in steps)),
        host_bytes=round(sum(weight * step.host_bytes for weight, step in steps)),
    )


def _weighted_sums(figures: Sequence[tuple[float, Mapping[Name, int]]]) -> dict[Name, int]:
    sums: defaultdict[Name, float] = defaultdict(float)
    for weight, named in figures:
        for name, value in named.items():
            sums[name] += weight * value
    return {name: round(value) for name, value in sums.items()}


def _alike(expected: Traced, found: Traced) -> bool:
    """Whether two steps have the same peaks by moment, collectives and FLOPs."""
    peaks = all(found.instants[moment].memory_bytes == instant.memory_bytes for moment, instant in expected.instants.items())
    return peaks and (expected.calls, expected.message_bytes, expected.flops) == (found.calls, found.message_bytes, found.flops)
