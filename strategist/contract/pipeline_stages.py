"""Pipeline stages: number of layers per stage, and placement of stages on ranks. Stages count from the embedding."""

from strategist.contract.knobs import V_SHAPED

STREAM_ROUND, STREAM_LEAST = 1.25, 8
"""Micro-batches per copy of a streamed stage: STREAM_ROUND times the number of ranks (10 for 8 devices in the runs of arXiv
2604.27085), at least STREAM_LEAST; with fewer a device would wait for its link.
"""

RESIDENT_LAYERS = 3
"""Layers whose activations are on the device while those of other layers are offloaded to the host: the current layer, the next
one, and the previous one, whose memory is freed only when the device has finished with it.
"""


def stream_rounds(micro_batches: int, ranks: int) -> int:
    """Number of rounds of a step: each round copies every streamed stage once."""
    return max(round(micro_batches / max(STREAM_ROUND * ranks, STREAM_LEAST)), 1)


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers per stage, split evenly; the first stages have one more where the number does not divide."""
    each, more = divmod(layers, stages)
    return tuple(each + (stage < more) for stage in range(stages))


def rank_of_stage(schedule: str, pp: int, stages: int, stage: int) -> int:
    """Pipeline rank of a stage: round-robin over the ranks; in a V-shaped schedule from the first rank to the last and back."""
    return min(stage, stages - 1 - stage) if schedule in V_SHAPED else stage % pp


def stages_of_rank(schedule: str, pp: int, stages: int, rank: int) -> tuple[int, ...]:
    """Stages of one pipeline rank."""
    return tuple(stage for stage in range(stages) if rank_of_stage(schedule, pp, stages, stage) == rank)
