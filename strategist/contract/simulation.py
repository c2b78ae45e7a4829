"""Simulation: memory and communication of one rank of a plan in a step, without the cluster."""

from dataclasses import dataclass
from enum import StrEnum

from strategist.contract.estimate import MemoryParts
from strategist.contract.rank_observation import Moment, Traffic

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
    peak_reserved_bytes: by the caching allocator of a GPU over a whole run, None where the plan is for a CPU, which has none.
    host_memory_bytes: of what the rank keeps in host memory, at its fullest. notes: what was simulated otherwise than it would run;
    upper_bound: in a way that needs more memory.
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
    peak_reserved_bytes: int | None = None
    host_memory_bytes: int = 0
    notes: tuple[str, ...] = ()
    upper_bound: bool = False


class Verdict(StrEnum):
    FITS = "fits"
    TOO_LARGE = "too large"
    OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the simulation of a plan says of its memory: bytes of the fullest rank's tensors, and what is reserved for them, None
    where that is not known. ``why`` it is open: what could not be simulated, or was simulated otherwise than it would run."""

    verdict: Verdict
    peak_memory_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    why: str = ""


RESERVED = "tensors fit, what is reserved for them does not: it runs only where the allocator gives enough cached blocks back"
"""Why a plan is open that fits by tensors alone."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Ranks of a plan, each simulated alone. ``predicted`` is the memory that the plan's estimate gives its fullest rank;
    None where another model took the place of the plan's."""

    plan_id: str
    capacity_bytes: float
    predicted: MemoryParts | None
    ranks: tuple[SimulatedRank, ...]

    @property
    def fullest(self) -> SimulatedRank:
        return max(self.ranks, key=lambda rank: rank.peak_memory_bytes)

    @property
    def tensors_fit(self) -> bool:
        """Whether the tensors of all of these ranks fit into a device."""
        return self.fullest.peak_memory_bytes <= self.capacity_bytes

    @property
    def reserved_bytes(self) -> int:
        """The most that the allocator of one of these ranks reserves; of a CPU, which reserves nothing, what its tensors take."""
        return max(rank.peak_reserved_bytes or rank.peak_memory_bytes for rank in self.ranks)

    @property
    def fits(self) -> bool:
        """Whether what is reserved for the tensors of all of these ranks fits into a device."""
        return self.reserved_bytes <= self.capacity_bytes

    @property
    def proof(self) -> Proof:
        """Too much is no proof where what was simulated needs more than what would run.

        Nor is what is reserved beyond the tensors: a full device gets cached blocks back.
        """
        fullest, open_ = self.fullest, self.tensors_fit or self.fullest.upper_bound
        verdict = Verdict.FITS if self.fits else Verdict.OPEN if open_ else Verdict.TOO_LARGE
        return Proof(
            verdict=verdict,
            peak_memory_bytes=fullest.peak_memory_bytes,
            peak_reserved_bytes=None if fullest.peak_reserved_bytes is None else self.reserved_bytes,
            why="; ".join((*([RESERVED] if self.tensors_fit else []), *fullest.notes)) if verdict is Verdict.OPEN else "",
        )
