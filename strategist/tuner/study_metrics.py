"""Study metrics: figures of a study so far, for the views of a tuning."""

import statistics
from collections.abc import Sequence

from strategist.contract.measurement import RAN, Kind
from strategist.contract.study import TrialResult
from strategist.cost.calibration import Calibration
from strategist.frozen import frozen
from strategist.planning.candidate_plans import estimate_of
from strategist.tuner.event import TuneEvent
from strategist.tuner.limits import device_hours
from strategist.tuner.study_state import StudyState


@frozen
class StepError:
    """Prediction errors of the step time of a trial: |predicted / measured - 1|.

    unlearned: of the prediction by the calibration before the first trial.
    proposed: of the prediction made when the trial was proposed.
    """

    number: int
    unlearned: float
    proposed: float


@frozen
class StudyMetrics:
    """Results of a study so far, and their cost.

    best: the best trial.
    first: the trial of the plan that the cost model ranked first; None if there is none yet.
    ahead_of_first: share by which the best is faster than ``first``; None if either did not run well.
    step_errors: errors of the trials that ran well.
    device_hours: of all attempts that ended.
    price_dollars: price of these hours; None if the devices have no price or were not used.
    """

    best: TrialResult | None
    first: TrialResult | None
    ahead_of_first: float | None
    step_errors: tuple[StepError, ...]
    device_hours: float
    price_dollars: float | None

    @property
    def unlearned_error(self) -> float | None:
        """Median error of predictions by the calibration before the first trial."""
        return statistics.median(error.unlearned for error in self.step_errors) if self.step_errors else None

    @property
    def proposed_error(self) -> float | None:
        """Median error of the predictions made when trials were proposed."""
        return statistics.median(error.proposed for error in self.step_errors) if self.step_errors else None


def metrics_at(event: TuneEvent, before: StudyMetrics | None = None) -> StudyMetrics:
    """The metrics at an event. Step errors known from ``before`` are not computed again."""
    state = event.state
    cluster = state.situation.cluster
    hours = device_hours(state.rows, cluster.devices)
    price = None if event.kind is Kind.SHADOW else cluster.device.price_per_hour
    first = _first(state)
    return StudyMetrics(
        best=state.best, first=first, ahead_of_first=_ahead_of_first(state, first),
        step_errors=_step_errors(state, event.prior, before.step_errors if before else ()), device_hours=hours,
        price_dollars=None if price is None else price * hours,
    )  # fmt: skip


def seconds_left(event: TuneEvent) -> float | None:
    """Estimated seconds until the tuning ends, from the median wall time of a trial; None before a trial has ended.

    No trial starts after a limit is reached, but the trial that runs at that time finishes.
    """
    state, limits = event.state, event.limits
    walls = [attempt.ended - attempt.started for row in state.rows for attempt in row.attempts if attempt.ended and row.outcome]
    if not walls:
        return None
    wall, devices = statistics.median(walls), state.situation.cluster.devices
    limits_seconds = [max(0, event.trials - len(state.results)) * wall]
    if limits.minutes is not None:
        limits_seconds.append(60 * (limits.minutes - limits.minutes_passed) + wall)
    if limits.device_hours is not None:
        limits_seconds.append(3600 * (limits.device_hours - device_hours(state.rows, devices)) / devices + wall)
    return max(0.0, min(limits_seconds) - (event.progress.elapsed_seconds if event.progress else 0.0))


def _first(state: StudyState) -> TrialResult | None:
    """The latest trial of the plan that the cost model ranked first."""
    if state.rankings.first is None:
        return None
    name = state.rankings.first.candidate.key
    trials = (result for _, result in sorted(state.results.items(), reverse=True))
    return next((result for result in trials if result.plan.candidate.key == name), None)


def _ahead_of_first(state: StudyState, first: TrialResult | None) -> float | None:
    if first is None:
        return None
    name = first.plan.candidate.key
    found = next((finalist for finalist in state.finalists if finalist.trial.plan.candidate.key == name), None)
    return None if found is None else found.value / state.finalists[0].value - 1


def _step_errors(state: StudyState, prior: Calibration, earlier_errors: Sequence[StepError]) -> tuple[StepError, ...]:
    by_number = {error.number: error for error in earlier_errors}
    errors = []
    for number, result in sorted(state.results.items()):
        measured = result.measurement
        if measured is None or measured.outcome not in RAN or not measured.step_seconds:
            continue
        if (error := by_number.get(number)) is None:
            unlearned = estimate_of(state.situation, result.plan.candidate, calibration=prior)
            error = StepError(
                number=number,
                unlearned=abs(unlearned.step_seconds / measured.step_seconds - 1),
                proposed=abs(result.plan.estimate.step_seconds / measured.step_seconds - 1),
            )
        errors.append(error)
    return tuple(errors)
