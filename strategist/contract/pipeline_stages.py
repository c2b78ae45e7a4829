"""Stages of a pipeline: how many layers each holds, and on which rank it lies. Stages count from the embedding."""

from strategist.contract.knobs import V_SHAPED

STREAM_ROUND, STREAM_LEAST = 1.25, 8
"""Micro-batches that one copy of a streamed stage serves: times the ranks, 10 for 8 devices in the runs of arXiv 2604.27085; fewer
than the least would leave a device waiting for its link."""

AWAY_WINDOW = 3
"""Layers whose activations lie on a device where those of others wait on the host: the one at work, the one that comes next, and
the one before, whose memory is free once the device is done with it."""


def stream_rounds(micro_batches: int, ranks: int) -> int:
    """How often a step copies every streamed stage."""
    return max(round(micro_batches / max(STREAM_ROUND * ranks, STREAM_LEAST)), 1)


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Equally many layers a stage; the first ones have one more where they don't go round."""
    each, more = divmod(layers, stages)
    return tuple(each + (stage < more) for stage in range(stages))


def rank_of_stage(schedule: str, pp: int, stages: int, stage: int) -> int:
    """Stages go round the ranks; in a V they go down and come back up."""
    return min(stage, stages - 1 - stage) if schedule in V_SHAPED else stage % pp


def stages_of_rank(schedule: str, pp: int, stages: int, rank: int) -> tuple[int, ...]:
    """The stages that a rank of the pipeline holds."""
    return tuple(stage for stage in range(stages) if rank_of_stage(schedule, pp, stages, stage) == rank)
