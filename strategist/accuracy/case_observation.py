"""Observation of a case for fitting a calibration, and the predicted memory to compare with its published memory."""

from strategist.accuracy.case import Case
from strategist.contract.estimate import MemoryParts
from strategist.cost.observation import Observation
from strategist.cost.price import Priced


def observation(case: Case) -> Observation:
    """The case as an observation with its step time only: published memory has too many definitions to fit to."""
    return Observation(
        model=case.model,
        cluster=case.cluster,
        workload=case.workload,
        candidate=case.candidate,
        accumulation=case.accumulation,
        stack=case.stack,
        step_seconds=case.step_seconds,
    )


def comparable_memory_bytes(priced: Priced, case: Case, row: int) -> float:
    """Predicted bytes of the stage whose memory is published: allocated, or reserved by the allocator, which caches no more than
    the device has; of a process with what no program can use of the device, and with all communicators.
    """
    columns = priced.memory if case.stage == "fullest" else priced.first_stage if case.stage == "first" else priced.last_stage
    parts = MemoryParts(**{name: float(part[row]) for name, part in columns.items()})
    if not case.reserved:
        return parts.allocated
    device, reserved = case.cluster.device, max(parts.total, min(parts.reserved, priced.capacity_bytes))
    context = device.memory_bytes - device.usable_memory_bytes + float(priced.communicator_bytes[row])
    return min(reserved + context, max(reserved, float(device.memory_bytes))) if case.process else reserved
