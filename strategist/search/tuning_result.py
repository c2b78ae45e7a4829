"""Result of a finished tuning."""

from strategist.contract.evidence import PolicyEvidence
from strategist.contract.goals import THROUGHPUT_ONLY, Goals
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Reason
from strategist.contract.request import Request
from strategist.contract.study import TrialResult
from strategist.cost.calibration import Calibration
from strategist.frozen import frozen


@frozen
class CrashCause:
    """Settings that make trials crash: ``crashed`` have them; ``ran`` differs from one of these in nothing else and did not
    crash.
    """

    settings: dict[str, KnobValue]
    crashed: tuple[int, ...]
    ran: int


@frozen
class Confirmation:
    """Comparison of the best trial with the second best.

    ahead: by which share the best is better.
    pairs: the same share in each pair of longer runs that alternated between the two.
    in_doubt: whether ``ahead`` is within the noise of a single comparison.
    """

    best: int
    runner_up: int
    ahead: float
    in_doubt: bool
    pairs: tuple[float, ...] = ()

    @property
    def conclusive(self) -> bool:
        """Whether the best won clearly, or won each of several pairs."""
        return not self.in_doubt or (len(self.pairs) > 1 and min(self.pairs) > 0)


@frozen
class Errors:
    """Prediction errors: median of |predicted / measured - 1| over the ``trials`` that ran; None without such trials."""

    trials: int
    step_seconds: float | None
    peak_memory: float | None


@frozen
class TuningResult:
    """Result of a study.

    errors_before: errors of the calibration that the study began with.
    errors_after: errors of the calibration on the trials that it was fitted to.
    errors_left_out: errors on each trial by a calibration fitted to all others, as expected of a new plan.
    ended: why the study ended before it had all trials; empty if it has.
    warnings: what cards say of the best trial.
    confirmation: how certain it is that no other trial is better.
    crash_causes: settings that crash; no other candidate with them was tried.
    front: numbers of the trials on the Pareto front, if ``goals`` has several objectives.
    nearest: number of the trial that violates its constraints least, if none keeps to all of them.
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
    goals: Goals = THROUGHPUT_ONLY
    front: tuple[int, ...] = ()
    nearest: int | None = None
