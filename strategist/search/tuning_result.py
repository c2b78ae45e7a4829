"""Result of a finished tuning."""

from dataclasses import dataclass

from strategist.contract.evidence import PolicyEvidence
from strategist.contract.goals import PLAIN, Goals
from strategist.contract.knobs import KnobValue
from strategist.contract.measurement import Kind, Measurement
from strategist.contract.plan import Plan, Reason
from strategist.contract.request import Request
from strategist.cost.calibration import Calibration


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """One finished trial: the plan with what was predicted when it was proposed, and the measurement; None when it was lost."""

    number: int
    proposed_by: str
    plan: Plan
    measurement: Measurement | None

    @property
    def simulated(self) -> bool:
        """Whether a simulation kept it from starting."""
        return self.measurement is not None and self.measurement.kind is Kind.SIMULATED


@dataclass(frozen=True, kw_only=True)
class CrashCause:
    """Settings with which the trials ``crashed``, while the trial ``ran`` that differs from one of them in nothing else."""

    settings: dict[str, KnobValue]
    crashed: tuple[int, ...]
    ran: int


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The ``best`` trial beside that of the ``runner_up``: by which share it is ``ahead``, and in each of the ``pairs`` of longer
    runs that took turns; ``in_doubt`` where that is less than chance may do in a single look."""

    best: int
    runner_up: int
    ahead: float
    in_doubt: bool
    pairs: tuple[float, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether the best won by far, or in each of several pairs."""
        return not self.in_doubt or (len(self.pairs) > 1 and min(self.pairs) > 0)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Median of |predicted / measured - 1| over ``trials`` that ran well as far as they went; None where there are none."""

    trials: int
    step_seconds: float | None
    peak_memory: float | None


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """What a study has shown.

    errors_after: of the calibration on the trials that it was fitted to.
    errors_left_out: on each trial by a calibration fitted to all others, as expected of a new plan.
    ended: why it ended before all trials that were asked for.
    warnings: what cards say of the best trial.
    confirmation: how sure it is that no other trial is better.
    crash_causes: settings that crash; no other candidate with them was tried.
    front: numbers of the trials that no other dominates, where ``goals`` has several objectives.
    nearest: number of the trial that misses its constraints by least, where none keeps to all of them.
    """

    study: str
    request: Request
    trials: tuple[TrialResult, ...]
    best: TrialResult | None
    ended: str
    calibration_before: Calibration
    calibration_after: Calibration
    errors_before: Errors
    errors_after: Errors
    errors_left_out: Errors
    evidence: tuple[PolicyEvidence, ...]
    warnings: tuple[Reason, ...] = ()
    confirmation: Confirmation | None = None
    crash_causes: tuple[CrashCause, ...] = ()
    goals: Goals = PLAIN
    front: tuple[int, ...] = ()
    nearest: int | None = None
