"""Simulation: memory and communication of one step of single ranks of a plan, without the cluster."""

from enum import StrEnum

from strategist.contract.estimate import MemoryParts
from strategist.contract.rank_observation import Moment, Traffic
from strategist.frozen import frozen

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
"""Parts of a simulated peak: those of ``MemoryParts`` that are tensors, and ``temporaries``, the workspace of running operators."""


@frozen
class SimulatedRank:
    """One simulated step of one rank, after a first step that allocates the optimizer states.

    stages: pipeline stages of the rank.
    peak_memory_bytes: peak of all live tensors; ``memory``: the peak by part; ``modules``: by the module whose pass allocated them,
        "" for tensors that were allocated before the step.
    between_steps_bytes: tensors that stay between steps.
    moment: what the rank did at the peak.
    traffic: calls and bytes of collectives, without seconds.
    flops: of matmuls and attention, including recomputation.
    peak_reserved_bytes: reserved by a GPU's caching allocator over a whole run; None for a plan on CPU.
    cache_releases: how often a step fills the device, so that the allocator waits and releases cached blocks.
    host_memory_bytes: peak of tensors that the rank keeps in host memory.
    notes: deviations of the simulation from the real run; ``upper_bound``: they need more memory than the real run.
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
    peak_reserved_bytes: int | None = None
    cache_releases: int = 0
    host_memory_bytes: int = 0
    notes: tuple[str, ...] = ()
    upper_bound: bool = False


class Verdict(StrEnum):
    FITS = "fits"
    TOO_LARGE = "too large"
    OPEN = "open"


@frozen
class Proof:
    """Verdict of a simulation on a plan's memory, with allocated and reserved bytes of the fullest rank (None: unknown).

    ``why``, for an open verdict: what could not be simulated, or how the simulation deviates from the real run.
    """

    verdict: Verdict
    peak_memory_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    why: str = ""


RESERVED_NOTE = "tensors fit, the allocator's blocks do not, even after it releases cached ones"
"""Reason for an open verdict where the tensors fit and the reserved memory does not."""


@frozen
class Simulation:
    """Ranks of a plan, each simulated alone.

    ``predicted`` is the estimated memory of the fullest rank; None where a model of the user's was simulated instead of the plan's.
    """

    plan_id: str
    capacity_bytes: float
    predicted: MemoryParts | None
    ranks: tuple[SimulatedRank, ...]

    @property
    def peak_rank(self) -> SimulatedRank:
        return max(self.ranks, key=lambda rank: rank.peak_memory_bytes)

    @property
    def tensors_fit(self) -> bool:
        """Whether the tensors of every simulated rank fit into its device."""
        return self.peak_rank.peak_memory_bytes <= self.capacity_bytes

    @property
    def reserved_bytes(self) -> int:
        """Largest reserved memory of a simulated rank; on CPU, which has no caching allocator, its tensors."""
        return max(rank.peak_reserved_bytes or rank.peak_memory_bytes for rank in self.ranks)

    @property
    def fits(self) -> bool:
        """Whether the reserved memory of every simulated rank fits into its device."""
        return self.reserved_bytes <= self.capacity_bytes

    @property
    def proof(self) -> Proof:
        """The verdict: fits, too large, or open.

        It is open where only reserved memory exceeds the device, because fragments differ from run to run, and where the simulation
        is an upper bound.
        """
        peak_rank, undecided = self.peak_rank, self.tensors_fit or self.peak_rank.upper_bound
        verdict = Verdict.FITS if self.fits else Verdict.OPEN if undecided else Verdict.TOO_LARGE
        return Proof(
            verdict=verdict,
            peak_memory_bytes=peak_rank.peak_memory_bytes,
            peak_reserved_bytes=None if peak_rank.peak_reserved_bytes is None else self.reserved_bytes,
            why="; ".join((*([RESERVED_NOTE] if self.tensors_fit else []), *peak_rank.notes)) if verdict is Verdict.OPEN else "",
        )
