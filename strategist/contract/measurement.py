"""Measurement: how one trial ended and what it showed."""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    NAN = "nan"
    CRASH = "crash"
    REFUSED = "refused"
    PRUNED = "pruned"
    BAD_MEASUREMENT = "bad_measurement"
    INFRASTRUCTURE = "infrastructure"
    LOST = "lost"
    CANCELLED = "cancelled"


TELLING = (Outcome.OK, Outcome.OOM, Outcome.TIMEOUT, Outcome.NAN, Outcome.CRASH)
"""Outcomes in which the plan had its chance."""


class Kind(StrEnum):
    REAL = "real"
    SHADOW = "shadow"
    SIMULATED = "simulated"
    PUBLISHED = "published"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What shows the outcome: the rank and phase where it happened, the message, and the last lines of that rank's log."""

    message: str = ""
    rank: int | None = None
    phase: str = ""
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Result of one trial; figures are None where the outcome has none.

    step_seconds: median over the steps after warm-up of the slowest rank; step_seconds_spread: (90th - 10th percentile) / median.
    peak_memory_bytes: allocated, one per rank. communication_seconds: time in which a collective ran, per step;
    exposed_communication_seconds: the part of it in which nothing else ran; the ratios are shares of the profiled step.
    exposed_comm_ratio_by_axis: the share in which nothing but collectives of that axis of the mesh ran, ``world`` for those over
    all ranks. bubble_ratio: the share in which a pipeline's rank waited for its neighbours, transfers not counted; 0 without one.
    rank_imbalance: computing time of the slowest rank of a stage over the stage's median, minus 1, of the worst stage;
    stage_imbalance: that of the slowest stage over the median of the stages, minus 1.
    losses: mean loss over the global batch, by step. grad_norms: norm of the whole gradient, by step.
    """

    plan_id: str
    kind: Kind
    outcome: Outcome
    evidence: Evidence = Evidence()
    step_seconds: float | None = None
    step_seconds_spread: float | None = None
    steps_measured: int = 0
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_memory_bytes: tuple[int, ...] = ()
    communication_seconds: float | None = None
    exposed_communication_seconds: float | None = None
    comm_ratio: float | None = None
    exposed_comm_ratio: float | None = None
    exposed_comm_ratio_by_axis: dict[str, float] | None = None
    bubble_ratio: float | None = None
    rank_imbalance: float | None = None
    stage_imbalance: float | None = None
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()
    wall_seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RankRecord:
    """What one rank of a trial wrote before it ended; the parent judges the trial from all of them.

    ``phase`` is the last section entered: spawn, init, build, warm-up, measure, profile or done. Step seconds are those after
    warm-up; the profiled figures are of one step of its own, since profiling slows it. ``pipeline_waits`` are the seconds of each
    send, receive and reduction over all ranks in which nothing else ran; empty without a pipeline.
    """

    rank: int
    outcome: Outcome
    phase: str
    message: str = ""
    step_seconds: tuple[float, ...] = ()
    peak_memory_bytes: int | None = None
    profiled_step_seconds: float | None = None
    communication_seconds: float | None = None
    exposed_communication_seconds: float | None = None
    exposed_seconds_by_axis: dict[str, float] | None = None
    pipeline_waits: tuple[float, ...] | None = None
    shortest_transfer_seconds: float | None = None
    compute_seconds: float | None = None
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """How a plan is run: counted steps after ``warmup_steps``, the seed of weights and data, the norm above which the gradient is
    scaled down (None: never), and the deadlines in seconds."""

    steps: int = 10
    warmup_steps: int = 3
    seed: int = 0
    learning_rate: float = 1e-3
    clip_norm: float | None = 1.0
    init_timeout_seconds: float = 120.0
    step_timeout_seconds: float = 60.0
    wall_timeout_seconds: float = 600.0
