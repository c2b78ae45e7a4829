"""Estimate: predicted memory, time and throughput of a candidate, by part."""

from dataclasses import fields, replace
from enum import StrEnum

from strategist.contract.bound import Bound
from strategist.contract.codec import added
from strategist.frozen import frozen

DEFAULT_CONFIDENCE = 0.9
"""Default confidence: a plan fits from this probability on, does not fit up to one minus it, and is tight between the two."""


class Fit(StrEnum):
    """Whether a plan fits the memory of its devices and hosts."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_LARGE = "does not fit"
    UNKNOWN = "cannot tell"

    @staticmethod
    def of(probability: float, confidence: float = DEFAULT_CONFIDENCE) -> "Fit":
        """Verdict for memory that suffices with this probability."""
        if probability >= confidence:
            return Fit.FITS
        return Fit.TOO_LARGE if probability <= 1 - confidence else Fit.TIGHT


@frozen
class MemoryParts:
    """Bytes on the fullest device at the peak of a step, by part.

    ``cache`` is not part of the required memory: free blocks that the caching allocator holds in addition, and releases before a
    device runs out of memory.
    """

    parameters: float
    unsharded_parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    communication: float
    allocator: float
    cache: float = added(0.0)

    @property
    def needed(self) -> dict[str, float]:
        """The parts that add up to the total."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "cache"}

    @property
    def total(self) -> float:
        """Bytes that a device must have."""
        return float(sum(self.needed.values()))

    @property
    def reserved(self) -> float:
        """Bytes that the caching allocator reserves if the device has room for them."""
        return self.total + self.cache

    @property
    def allocated(self) -> float:
        """Bytes of tensors, as a Measurement counts them: without what the allocator reserves in addition."""
        return self.total - self.allocator


@frozen
class TimeParts:
    """Seconds that each part adds to a step; of communication only the *exposed* time."""

    matmul: float
    attention: float
    memory_bound: float
    recompute: float
    launch: float
    tp_communication: float
    cp_communication: float
    ep_communication: float
    dp_communication: float
    pp_communication: float
    bubble: float
    offload: float
    optimizer: float

    @property
    def total(self) -> float:
        return float(sum(getattr(self, field.name) for field in fields(self)))

    @property
    def exposed_communication(self) -> float:
        return self.tp_communication + self.cp_communication + self.ep_communication + self.dp_communication + self.pp_communication


def shown_probability(probability: float) -> float:
    """A probability for display, between 1 % and 99 %, because no prediction is certain."""
    return min(max(probability, 0.01), 0.99)


@frozen
class Estimate:
    """Predicted memory, time and throughput of one candidate.

    Ratios are shares of the step; MFU counts model FLOPs only, no recomputation.

    price_per_step: US dollars; None where the device has no price.
    energy_joules_per_step: energy drawn from the wall; None where the power limit of a board is unknown.
    pipeline_layers: layers of each pipeline stage, first to last, where stages are weighted by device speed or by the cost of
        embedding and head; empty where stages are even.
    step_seconds_range: 90 % interval of the step time, judged by measurements elsewhere; not below ``bound``.
    fit_confidence: probability that the device's memory suffices.
    bound: lower bound of the step time; None in plans from before bounds existed.
    """

    memory: MemoryParts
    peak_memory_bytes: float
    capacity_bytes: float
    host_memory_bytes_per_node: float
    time: TimeParts
    step_seconds: float
    tokens_per_second: float
    mfu: float
    communication_seconds: float
    comm_ratio: float
    exposed_comm_ratio: float
    price_per_step: float | None = None
    step_seconds_range: tuple[float, float] | None = None
    fit_confidence: float = 0.5
    energy_joules_per_step: float | None = None
    pipeline_layers: tuple[int, ...] = ()
    bound: Bound | None = added(None)

    def with_bound(self, bound: Bound) -> "Estimate":
        """The same estimate with a lower bound; the low end of the step's range is raised to it, at most to the predicted step."""
        if self.step_seconds_range is None:
            return replace(self, bound=bound)
        low, high = self.step_seconds_range
        return replace(self, bound=bound, step_seconds_range=(max(low, min(bound.seconds, self.step_seconds)), high))

    @property
    def bound_over_step(self) -> float | None:
        """Lower bound over predicted step time: 1 is optimal; above 1 the prediction is physically impossible."""
        return None if self.bound is None else self.bound.seconds / self.step_seconds

    @property
    def fit(self) -> Fit:
        """Verdict on the devices' memory, by ``fit_confidence``."""
        return Fit.of(self.fit_confidence)

    @property
    def shown_confidence(self) -> float:
        """``fit_confidence`` for display."""
        return shown_probability(self.fit_confidence)

    @property
    def fits(self) -> bool:
        """Whether the predicted peak memory is within the device's capacity (a probability of about 50 %)."""
        return self.peak_memory_bytes <= self.capacity_bytes


def fit_of(estimate: Estimate, host: float | None, confidence: float = DEFAULT_CONFIDENCE) -> Fit:
    """Verdict on the memory of devices and hosts. ``host``: bytes of a node's host memory; None if unknown, which never lacks."""
    if host is not None and estimate.host_memory_bytes_per_node > host:
        return Fit.TOO_LARGE
    return Fit.of(estimate.fit_confidence, confidence)
