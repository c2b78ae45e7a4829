"""Estimate: predicted memory, time and throughput of a candidate, by part."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum

from strategist.contract.bound import Bound
from strategist.contract.codec import added

SURE = 0.9
"""Probability from which a plan fits, unless another is asked for; up to one minus it, it does not; between them it is tight."""


class Fit(StrEnum):
    """Whether a plan fits the memory of its devices and hosts."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_LARGE = "does not fit"
    UNKNOWN = "cannot tell"

    @staticmethod
    def of(probability: float, confidence: float = SURE) -> "Fit":
        """The verdict on memory that suffices with this probability."""
        if probability >= confidence:
            return Fit.FITS
        return Fit.TOO_LARGE if probability <= 1 - confidence else Fit.TIGHT


@dataclass(frozen=True, kw_only=True)
class MemoryParts:
    """Bytes on the fullest device at the worst instant of a step, by part.

    ``cache`` is no part of what is needed: free blocks that the caching allocator holds beside the others, and gives back before a
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
        """What a device must have."""
        return float(sum(self.needed.values()))

    @property
    def reserved(self) -> float:
        """What the caching allocator holds where the device has room for it."""
        return self.total + self.cache

    @property
    def allocated(self) -> float:
        """What tensors take, as a Measurement counts it: all but what the allocator reserves above them."""
        return self.total - self.allocator


@dataclass(frozen=True, kw_only=True)
class TimeParts:
    """Seconds of a step that each part adds to its length; the communication parts are the *exposed* time."""

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


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Prediction for one candidate. Ratios are shares of the step; MFU counts model FLOPs only, no recomputation.

    ``price_per_step`` is in US dollars, None where the device has no price; ``energy_joules_per_step`` is drawn from the wall, None
    where the power limit of a board is not known.
    ``pipeline_layers`` counts the layers of each stage of a pipeline, first to last, where they follow the speed of their devices
    or the weight of the ends; empty where stages are even. Nine steps of ten lie in ``step_seconds_range``, as far as what was
    measured elsewhere tells, and not below the ``bound``; ``fit_confidence`` is how sure it is that the device's memory suffices.
    ``bound`` is the least that such a step takes; None in plans of before there was one.
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
        """The same prediction beside the least that such a step takes, which the fast end of its range does not pass."""
        if self.step_seconds_range is None:
            return replace(self, bound=bound)
        low, high = self.step_seconds_range
        return replace(self, bound=bound, step_seconds_range=(max(low, min(bound.seconds, self.step_seconds)), high))

    @property
    def bound_over_step(self) -> float | None:
        """The bound over the step: 1 where nothing can be faster, above 1 where the prediction breaks physics."""
        return None if self.bound is None else self.bound.seconds / self.step_seconds

    @property
    def fit(self) -> Fit:
        """The verdict on the devices' memory, by the probability that it suffices."""
        return Fit.of(self.fit_confidence)

    @property
    def shown_confidence(self) -> float:
        """``fit_confidence`` as it is shown: what is predicted is never quite sure."""
        return min(max(self.fit_confidence, 0.01), 0.99)

    @property
    def fits(self) -> bool:
        """Whether it fits as likely as not."""
        return self.peak_memory_bytes <= self.capacity_bytes
