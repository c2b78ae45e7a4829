"""Split points: layers of each pipeline stage, so that the slowest rank, with embedding and head, takes the least time."""

import heapq
from collections.abc import Sequence

from strategist.contract.pipeline_stages import even_layers
from strategist.cost.pipeline_actions import Pipeline
from strategist.frozen import frozen

MIN_GAIN = 1e-9
"""Minimum relative gain over the even split; below it stages stay even."""


@frozen
class Split:
    """Layers of each stage, from the embedding to the head, and seconds of a micro-batch on the slowest rank, with this split
    and with even stages.
    """

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
    """The split that minimises the time of the slowest rank; each stage has at least one layer.

    Greedy: each layer goes to the rank that would finish first with it, and there to the stage that finishes first. Layers take
    equal time, so the result is optimal: any other split gives some rank a layer with which it is slower. ``ends_seconds`` are the
    seconds of each stage without its layers; ``speeds`` are relative speeds of the ranks, equal by default.
    """
    speed = list(speeds) or [1.0] * pipeline.pp
    stages = [[stage for stage in range(pipeline.stages) if pipeline.rank_of(stage) == rank] for rank in range(pipeline.pp)]
    stage_layers = [1] * pipeline.stages

    def rank_seconds(rank: int, extra_layers: int) -> float:
        """Seconds of a rank with some more layers."""
        rank_layers = sum(stage_layers[stage] for stage in stages[rank]) + extra_layers
        return (rank_layers * layer_seconds + sum(ends_seconds[stage] for stage in stages[rank])) / speed[rank]

    queue = [(rank_seconds(rank, 1), rank) for rank in range(pipeline.pp)]
    heapq.heapify(queue)
    for _ in range(layers - pipeline.stages):
        rank = queue[0][1]
        stage_layers[min(stages[rank], key=lambda stage: stage_layers[stage] * layer_seconds + ends_seconds[stage])] += 1
        heapq.heapreplace(queue, (rank_seconds(rank, 1), rank))
    slowest_seconds = max(rank_seconds(rank, 0) for rank in range(pipeline.pp))
    best, stage_layers = tuple(stage_layers), list(even_layers(layers, pipeline.stages))
    even_seconds = max(rank_seconds(rank, 0) for rank in range(pipeline.pp))
    if even_seconds <= slowest_seconds * (1 + MIN_GAIN):
        best, slowest_seconds = tuple(stage_layers), even_seconds
    return Split(layers=best, slowest_seconds=slowest_seconds, even_seconds=even_seconds)
