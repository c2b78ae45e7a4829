"""Simulation: what one rank of a plan holds and exchanges in a step, seen without its cluster."""

from dataclasses import dataclass

from strategist.contract.measurement import Moment, Traffic

MEMORY_PARTS = (
    "parameters",
    "unsharded_parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "communication",
    "temporaries",
)
"""Of a simulated peak: those of ``MemoryParts`` that are tensors, and what the operators at that moment needed for themselves."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRank:
    """A step of one rank after its first: the first one makes the optimizer's states.

    peak_memory_bytes: of all tensors that lived at the fullest instant; memory: the same by part; modules: by the module whose pass
    made them, "" for what was there before the step. moment: what the rank did then. between_steps_bytes: of what stays.
    stages: those of the pipeline that it holds. traffic: without seconds. flops: of its matmuls and attention, recomputation too.
    """

    rank: int
    stages: tuple[int, ...]
    peak_memory_bytes: int
    between_steps_bytes: int
    memory: dict[str, int]
    modules: dict[str, int]
    moment: Moment
    traffic: tuple[Traffic, ...]
    flops: float
    wall_seconds: float
