"""Metrics of a study."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tuner_stand_in import SETTINGS, StandIn

from strategist.contract.measurement import Kind, Outcome
from strategist.executors.executor import TrialRunner
from strategist.planning.planner import ranked
from strategist.tuner.event import TuneEvent
from strategist.tuner.limits import Limits
from strategist.tuner.study_metrics import metrics_at, seconds_left
from strategist.tuner.tune import tune
from tuner.studies import DECK, REQUEST, tuned


@pytest.fixture
def last(tmp_path: Path) -> Callable[..., TuneEvent]:
    """The last event of a tuning."""

    def run(trials: int, executor: StandIn | None = None, *, request=REQUEST, **limits) -> TuneEvent:
        events: list[TuneEvent] = []
        asked = Limits(trials=trials, confirm=0, **limits)
        executor = executor or StandIn()
        tune(
            request,
            study=tmp_path,
            limits=asked,
            runner=TrialRunner(executor=executor, settings=SETTINGS),
            deck=DECK,
            on_event=events.append,
        )
        return events[-1]

    return run


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[TuneEvent]:
    """All events of a tuning of two successful trials."""
    received: list[TuneEvent] = []
    tuned(tmp_path_factory.mktemp("metrics"), 2, StandIn(trial_seconds=0.05), on_event=received.append)
    return received


class First(StandIn):
    """An executor whose first trial differs from later ones."""

    def execute(self, plan, folder, *more):
        return (super() if folder.name == "1-1" else StandIn()).execute(plan, folder, *more)


def test_the_best_is_compared_with_the_cost_models_first_choice(last) -> None:
    event = last(2, First(slowness=3.0))
    found = metrics_at(event)
    chosen = ranked(event.state.situation, deck=DECK, limit=1)[0]
    assert found.first is not None
    assert found.first.plan.candidate.key == chosen.candidate.key
    assert found.best.number != found.first.number
    slower = found.first.measurement.step_seconds / found.best.measurement.step_seconds
    assert found.ahead_of_first == pytest.approx(slower - 1)
    assert found.ahead_of_first > 0.5


def test_the_lead_is_zero_if_the_first_choice_is_the_best(events: list[TuneEvent]) -> None:
    found = metrics_at(events[-1])
    assert found.best == found.first
    assert found.ahead_of_first == 0


def test_the_lead_is_unknown_if_the_first_choice_failed(last) -> None:
    found = metrics_at(last(2, First(outcome=Outcome.OOM)))
    assert found.first.measurement.outcome is Outcome.OOM
    assert found.best.number == 2
    assert found.ahead_of_first is None


@pytest.mark.full
def test_prediction_errors_shrink_with_calibration(last) -> None:
    event = last(4, StandIn(slowness=3.0))
    found = metrics_at(event)
    assert [error.number for error in found.step_errors] == [1, 2, 3, 4]
    first, *later = found.step_errors
    assert first.proposed == pytest.approx(first.unlearned)
    assert all(error.proposed < 0.5 * error.unlearned for error in later)
    assert found.proposed_error < 0.5 * found.unlearned_error
    assert metrics_at(event, found) == found


def test_prediction_errors_are_unknown_before_a_successful_trial(last) -> None:
    found = metrics_at(last(1, StandIn(outcome=Outcome.OOM)))
    assert (found.best, found.step_errors, found.unlearned_error, found.proposed_error) == (None, (), None, None)


def test_costs_are_device_hours_times_the_profiles_price(last) -> None:
    event = last(1, StandIn(trial_seconds=0.05), request=replace(REQUEST, gpus="4xH100"))
    found = metrics_at(event)
    price = event.state.situation.cluster.device.price_per_hour
    assert price * found.device_hours > 0
    assert found.price_dollars == pytest.approx(price * found.device_hours)
    assert metrics_at(replace(event, kind=Kind.SHADOW)).price_dollars is None


def test_costs_are_unknown_without_a_device_price(events: list[TuneEvent]) -> None:
    assert metrics_at(events[-1]).price_dollars is None


def test_the_remaining_time_follows_trials_or_limits(events: list[TuneEvent]) -> None:
    event = events[-1]
    assert seconds_left(event) == 0
    wall = seconds_left(replace(event, trials=3))
    assert wall > 0.05
    assert seconds_left(replace(event, trials=102)) == pytest.approx(100 * wall)
    nearly_over = Limits(trials=102, minutes=1, began=event.limits.began - 57)
    assert seconds_left(replace(event, trials=102, limits=nearly_over)) <= 3 + wall
    spent = metrics_at(event).device_hours
    hours = Limits(trials=102, device_hours=spent + 4 / 3600)  # a second of four devices
    assert seconds_left(replace(event, trials=102, limits=hours)) == pytest.approx(1 + wall)


def test_the_remaining_time_is_unknown_before_the_first_trial_ends(events: list[TuneEvent]) -> None:
    assert seconds_left(events[0]) is None
