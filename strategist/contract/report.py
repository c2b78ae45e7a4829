"""Contents of the report of a plan or a study: values only, so that renderers decide nothing."""

from dataclasses import dataclass

from strategist.contract.answer import Alternative, Dropped
from strategist.contract.estimate import MemoryParts
from strategist.contract.explanation import Explanation
from strategist.contract.knobs import Candidate
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.contract.request import Request


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """What a device of each of these ``ranks`` of the pipeline holds at its worst instant, and of how many ``layers``."""

    ranks: tuple[int, ...]
    layers: int
    memory: MemoryParts


@dataclass(frozen=True, kw_only=True)
class Instant:
    """What a device of the fullest rank holds at one instant of a step, which ``name`` says."""

    name: str
    memory: MemoryParts


@dataclass(frozen=True, kw_only=True)
class Span:
    """What a rank of the pipeline does from ``start_seconds`` on: a pass of one micro-batch over one stage, or, where both are
    None, what follows its last one. ``work`` is forward, backward, backward for inputs or weights, or a part of the step."""

    rank: int
    work: str
    start_seconds: float
    end_seconds: float
    stage: int | None = None
    micro_batch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A simulated step, or the last of several alike ``rounds`` of it: ``bubble_seconds`` are those in which each rank waits."""

    schedule: str
    micro_batches: int
    step_seconds: float
    spans: tuple[Span, ...]
    bubble_seconds: tuple[float, ...]
    rounds: int = 1


@dataclass(frozen=True, kw_only=True)
class MeshAxis:
    """An axis of the mesh over the nodes: neighbours in a group of ``degree`` ranks are ``stride`` ranks apart, and their slowest
    way to each other is ``link``; ``first`` are the ranks of the first group."""

    name: str
    degree: int
    stride: int
    first: tuple[int, ...]
    across_nodes: bool
    link: str
    link_bytes_per_second: float


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A candidate among all, the best of ``alike`` ones, which have its mesh, recomputation and offload. ``place`` is its own in
    the ranking, None where it does not fit; ``front`` says that none which fits is both faster and smaller."""

    candidate: Candidate
    tokens_per_second: float
    peak_memory_bytes: float
    alike: int
    place: int | None = None
    front: bool = False


@dataclass(frozen=True, kw_only=True)
class Space:
    """All ``candidates`` of a request and where they went, as in an Answer; ``seen`` are those that stand for others, the best
    first. ``unseen`` groups of candidates have no member among them."""

    candidates: int
    dropped: tuple[Dropped, ...]
    too_large: int
    host_too_small: int
    feasible: int
    seen: tuple[Seen, ...]
    unseen: int = 0


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """A plan with everything that a report shows.

    ``plans`` are the plan and those of its answer; ``verdict``, ``notes`` and ``alternatives`` are the answer's. ``timeline`` and
    ``space`` may be None: ``no_timeline`` and ``no_space`` say why. ``command`` plans it again; empty where the names of model
    and devices do not describe them fully. ``instants`` are those of a step in their order; ``traffic`` are the bytes through the
    links of a rank of the first stage. Both are empty where nodes differ.
    """

    plan: Plan
    plans: tuple[Plan, ...]
    verdict: str
    notes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    ranks: tuple[RankMemory, ...]
    mesh: tuple[MeshAxis, ...]
    explanation: Explanation
    timeline: Timeline | None = None
    no_timeline: str = ""
    space: Space | None = None
    no_space: str = ""
    command: tuple[str, ...] = ()
    instants: tuple[Instant, ...] = ()
    traffic: tuple[Traffic, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TriedPlan:
    """A trial of a study: how it ``ended`` (its outcome, or where it stands), and which constraints it ``misses``. ``best`` is the
    one that the objective ranks first, ``front`` are those that no other dominates."""

    number: int
    proposed_by: str
    ended: str
    plan: Plan
    measurement: Measurement | None = None
    misses: tuple[str, ...] = ()
    best: bool = False
    front: bool = False


@dataclass(frozen=True, kw_only=True)
class Influence:
    """How much of what the trials' steps differ in (the variance of the logarithm of their seconds) goes with one setting: nothing
    that chance would not show, up to 1. ``means`` are the geometric mean of the seconds of each value, with its trials."""

    setting: str
    share: float
    means: tuple[tuple[str, float, int], ...]


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a finished tuning learned: medians of |predicted / measured - 1| of the step and of the peak memory, by predictor;
    and the ``factors`` that moved, each with what it was and what it became."""

    step_errors: dict[str, float | None]
    memory_errors: dict[str, float | None]
    factors: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Attempts that ended alike, and the hours of devices that they took."""

    ended: str
    attempts: int
    device_hours: float


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """A study with all that is shown of it. ``goals`` says in words what it wants, of ``objectives``; ``price_per_device_hour`` is
    None where devices have no price, or did not run; ``learned`` is None until a tuning has ended there. ``commands`` go on with
    it and show its best plan, as far as options can say that."""

    study: str
    status: str
    kind: str
    request: Request
    goals: str
    objectives: tuple[str, ...]
    trials: tuple[TriedPlan, ...]
    influences: tuple[Influence, ...]
    spent: tuple[Spent, ...]
    price_per_device_hour: float | None = None
    learned: Learned | None = None
    commands: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunStep:
    """A step of a run, as it was written while it ran; None where it has no figure."""

    step: int
    loss: float | None = None
    seconds: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A run in the folder ``run``: its plan, what was measured, and its ``steps`` one by one."""

    run: str
    plan: Plan
    measurement: Measurement
    steps: tuple[RunStep, ...]
