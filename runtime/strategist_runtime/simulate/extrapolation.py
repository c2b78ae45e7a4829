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
    smallest: StepSize,
    micro_batch_multiple: int,
    trace: Callable[[StepSize], Traced],
    repeat: Repeat = lambda timeline, *_: timeline,
) -> Traced:
    """The figures of a step of size ``whole``.

    A large step is extrapolated from traces of size ``smallest`` and slightly larger ones, with micro-batches in multiples of
    ``micro_batch_multiple``. If they show that figures do not grow linearly, the whole step is traced. ``repeat`` extends a
    timeline, given one with a period less, the size of its step and the number of further periods; micro-batches are not added
    to timelines.
    """
    period_step = int(whole.middle > smallest.middle + MIN_PERIODS)
    micro_batch_step = micro_batch_multiple if whole.micro_batches > 3 * (smallest.micro_batches + micro_batch_multiple) else 0
    if not period_step and not micro_batch_step:
        return trace(whole)
    start = StepSize(
        middle=smallest.middle if period_step else whole.middle,
        micro_batches=smallest.micro_batches if micro_batch_step else whole.micro_batches,
    )

    def size(layer_steps: int, batch_steps: int) -> StepSize:
        return StepSize(
            middle=start.middle + layer_steps * period_step, micro_batches=start.micro_batches + batch_steps * micro_batch_step
        )

    corners = {
        (layer_steps, batch_steps): trace(size(layer_steps, batch_steps))
        for layer_steps in range(2 if period_step else 1)
        for batch_steps in range(2 if micro_batch_step else 1)
    }
    larger = trace(size(2, 2))
    if not _has_equal_figures(_extrapolated_step(corners, 2, 2), larger):
        return trace(whole)
    layer_steps = whole.middle - start.middle
    batch_steps = (whole.micro_batches - start.micro_batches) / micro_batch_step if micro_batch_step else 0.0
    timeline = repeat(larger.timeline, corners[1, 0].timeline, size(2, 2), layer_steps - 2) if period_step else larger.timeline
    return replace(_extrapolated_step(corners, layer_steps, batch_steps), timeline=timeline)


def _extrapolated_step(corners: Mapping[tuple[int, int], Traced], layer_steps: float, batch_steps: float) -> Traced:
    """The step extrapolated ``layer_steps`` steps of layers and ``batch_steps`` steps of micro-batches from the first corner."""
    layer_weights = {0: (1.0,), 1: (1.0 - layer_steps, layer_steps)}[max(x for x, _ in corners)]
    batch_weights = {0: (1.0,), 1: (1.0 - batch_steps, batch_steps)}[max(y for _, y in corners)]
    return _sum([(layer_weights[x] * batch_weights[y], step) for (x, y), step in corners.items()])


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
    for weight, values in figures:
        for name, value in values.items():
            sums[name] += weight * value
    return {name: round(value) for name, value in sums.items()}


def _has_equal_figures(expected: Traced, found: Traced) -> bool:
    """Whether two steps have the same peaks by moment, collectives and FLOPs."""
    peaks = all(found.instants[moment].memory_bytes == instant.memory_bytes for moment, instant in expected.instants.items())
    return peaks and (expected.calls, expected.message_bytes, expected.flops) == (found.calls, found.message_bytes, found.flops)
