"""Split points: how many layers each stage of a pipeline gets, so that the slowest rank is fastest, embedding and head included."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from strategist.contract.pipeline_stages import even_layers
from strategist.cost.pipeline_actions import Pipeline

MIN_GAIN = 1e-9
"""A split that is not faster by more than this share is no reason to leave the even one."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Layers of each stage, from the embedding to the head, and seconds of a micro-batch on the slowest rank, so and evenly."""

    layers: tuple[int, ...]
    slowest_seconds: float
    even_seconds: float

    @property
    def gain(self) -> float:
        """Relative gain of the slowest rank's speed over even stages."""
        return self.even_seconds / self.slowest_seconds - 1


def split(
    pipeline: Pipeline, layers: int, layer_seconds: float, ends_seconds: Sequence[float], speeds: Sequence[float] = ()
) -> Split:
    """The split with the fastest slowest rank, each stage holding a layer at least.

    One layer after the other goes to the rank that then is soonest through, and there to the stage that is. All layers weigh the
    same, so nothing faster exists: any other split gives some rank a layer that this one found too slow. ``ends_seconds`` is what
    each stage does besides its layers; ``speeds`` of the ranks count against each other, equal without any.
    """
    speed = list(speeds) or [1.0] * pipeline.pp
    stages = [[stage for stage in range(pipeline.stages) if pipeline.rank_of(stage) == rank] for rank in range(pipeline.pp)]
    given = [1] * pipeline.stages

    def after(rank: int, more: int) -> float:
        """Seconds of a rank with some more layers."""
        held = sum(given[stage] for stage in stages[rank]) + more
        return (held * layer_seconds + sum(ends_seconds[stage] for stage in stages[rank])) / speed[rank]

    queue = [(after(rank, 1), rank) for rank in range(pipeline.pp)]
    heapq.heapify(queue)
    for _ in range(layers - pipeline.stages):
        rank = queue[0][1]
        given[min(stages[rank], key=lambda stage: given[stage] * layer_seconds + ends_seconds[stage])] += 1
        heapq.heapreplace(queue, (after(rank, 1), rank))
    slowest = max(after(rank, 0) for rank in range(pipeline.pp))
    best, given = tuple(given), list(even_layers(layers, pipeline.stages))
    even = max(after(rank, 0) for rank in range(pipeline.pp))
    if even <= slowest * (1 + MIN_GAIN):
        best, slowest = tuple(given), even
    return Split(layers=best, slowest_seconds=slowest, even_seconds=even)
