"""Study metrics: figures of a study so far, for the views of a tuning."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from strategist.contract.measurement import RAN, Kind
from strategist.cost.calibration import Calibration
from strategist.planning.planner import price_candidate
from strategist.search.tuning_result import TrialResult
from strategist.tuner.event import TuneEvent
from strategist.tuner.limits import device_hours
from strategist.tuner.study_state import StudyState


@dataclass(frozen=True, kw_only=True)
class StepError:
    """|predicted / measured - 1| of a trial's step time: by the calibration before anything was learned, and as it was proposed,
    before its measurement was known."""

    number: int
    unlearned: float
    proposed: float


@dataclass(frozen=True, kw_only=True)
class StudyMetrics:
    """What a study has shown, and what that took.

    ``first`` is the trial of the plan that the cost model put first, as far as it has one; ``ahead_of_first`` the share by which
    the best is better, None where either did not run well. ``step_errors`` are those of the trials that ran well. ``device_hours``
    are those of all attempts that ended; ``price_dollars`` what they cost, None where the devices have no price, or did not run.
    """

    best: TrialResult | None
    first: TrialResult | None
    ahead_of_first: float | None
    step_errors: tuple[StepError, ...]
    device_hours: float
    price_dollars: float | None

    @property
    def unlearned_error(self) -> float | None:
        """The median error without what was learned."""
        return statistics.median(error.unlearned for error in self.step_errors) if self.step_errors else None

    @property
    def proposed_error(self) -> float | None:
        """The median error of the predictions with which trials were proposed."""
        return statistics.median(error.proposed for error in self.step_errors) if self.step_errors else None


def metrics_at(event: TuneEvent, before: StudyMetrics | None = None) -> StudyMetrics:
    """The outlook at an event. What is known from the one ``before`` is not priced again."""
    state = event.state
    cluster = state.asked.cluster
    hours = device_hours(state.rows, cluster.devices)
    price = None if event.kind is Kind.SHADOW else cluster.device.price_per_hour
    first = _first(state)
    return StudyMetrics(
        best=state.best, first=first, ahead_of_first=_ahead(state, first),
        step_errors=_step_errors(state, event.prior, before.step_errors if before else ()), device_hours=hours,
        price_dollars=None if price is None else price * hours,
    )  # fmt: skip


def seconds_left(event: TuneEvent) -> float | None:
    """What the rest may take, by what a trial takes in the median; None before one has ended. No trial starts when a limit is
    reached, and the one that runs then goes on."""
    state, limits = event.state, event.limits
    walls = [each.ended - each.started for row in state.rows for each in row.attempts if each.ended and row.outcome]
    if not walls:
        return None
    wall, devices = statistics.median(walls), state.asked.cluster.devices
    left = [max(0, event.trials - len(state.results)) * wall]
    if limits.minutes is not None:
        left.append(60 * (limits.minutes - limits.minutes_passed) + wall)
    if limits.device_hours is not None:
        left.append(3600 * (limits.device_hours - device_hours(state.rows, devices)) / devices + wall)
    return max(0.0, min(left) - (event.progress.elapsed_seconds if event.progress else 0.0))


def _first(state: StudyState) -> TrialResult | None:
    """The latest trial of the plan that the cost model put first."""
    if state.rankings.first is None:
        return None
    name = state.rankings.first.candidate.key
    trials = (result for _, result in sorted(state.results.items(), reverse=True))
    return next((result for result in trials if result.plan.candidate.key == name), None)


def _ahead(state: StudyState, first: TrialResult | None) -> float | None:
    if first is None:
        return None
    name = first.plan.candidate.key
    found = next((finalist for finalist in state.finalists if finalist.trial.plan.candidate.key == name), None)
    return None if found is None else found.value / state.finalists[0].value - 1


def _step_errors(state: StudyState, prior: Calibration, known: Sequence[StepError]) -> tuple[StepError, ...]:
    by_number = {error.number: error for error in known}
    errors = []
    for number, result in sorted(state.results.items()):
        measured = result.measurement
        if measured is None or measured.outcome not in RAN or not measured.step_seconds:
            continue
        if (error := by_number.get(number)) is None:
            plan = price_candidate(state.asked, result.plan.candidate, deck=state.deck, calibration=prior)
            error = StepError(
                number=number,
                unlearned=abs(plan.estimate.step_seconds / measured.step_seconds - 1),
                proposed=abs(result.plan.estimate.step_seconds / measured.step_seconds - 1),
            )
        errors.append(error)
    return tuple(errors)
