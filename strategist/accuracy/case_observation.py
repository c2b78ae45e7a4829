"""Observation of a case for the fit of a calibration, and the part of a price to compare its published memory with."""

from strategist.accuracy.case import Case
from strategist.contract.estimate import MemoryParts
from strategist.cost.observation import Observation
from strategist.cost.price import Priced


def observation(case: Case) -> Observation:
    """A case as something to fit to: its time. What a source says of memory is of many kinds and fits nothing."""
    return Observation(
        model=case.model,
        cluster=case.cluster,
        workload=case.workload,
        candidate=case.candidate,
        accumulation=case.accumulation,
        stack=case.stack,
        step_seconds=case.step_seconds,
    )


def comparable_memory_bytes(priced: Priced, case: Case, at: int) -> float:
    """Predicted bytes of the stage whose memory is published: what tensors take, or with what the allocator reserves above them,
    which caches no more than there is."""
    columns = priced.memory if case.stage == "fullest" else priced.first_stage if case.stage == "first" else priced.last_stage
    parts = MemoryParts(**{name: float(part[at]) for name, part in columns.items()})
    return max(parts.total, min(parts.reserved, priced.capacity_bytes)) if case.reserved else parts.allocated
