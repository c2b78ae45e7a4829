"""What a study's trials amount to, in figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tuner_stand_in import SETTINGS, StandIn

from strategist.contract.measurement import Kind, Outcome
from strategist.planning.planner import ranked
from strategist.tuner.event import TuneEvent
from strategist.tuner.limits import Limits
from strategist.tuner.study_metrics import metrics_at, seconds_left
from strategist.tuner.tune import tune
from tuner.studies import DECK, REQUEST, tuned


@pytest.fixture
def last(tmp_path: Path) -> Callable[..., TuneEvent]:
    """The last event of a tuning of so many trials."""

    def run(trials: int, executor: StandIn | None = None, *, request=REQUEST, **limits) -> TuneEvent:
        events: list[TuneEvent] = []
        asked = Limits(trials=trials, confirm=0, **limits)
        executor = executor or StandIn()
        tune(request, study=tmp_path, limits=asked, settings=SETTINGS, deck=DECK, executor=executor, on_event=events.append)
        return events[-1]

    return run


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[TuneEvent]:
    """All events of a tuning of two trials, in which all is as expected."""
    heard: list[TuneEvent] = []
    tuned(tmp_path_factory.mktemp("outlook"), 2, StandIn(trial_seconds=0.05), on_event=heard.append)
    return heard


class First(StandIn):
    """The first trial is another than those to come."""

    def execute(self, plan, folder, *more):
        return (super() if folder.name == "1-1" else StandIn()).execute(plan, folder, *more)


def test_the_best_is_held_against_the_cost_models_first_choice(last) -> None:
    event = last(2, First(slowness=3.0))
    found = metrics_at(event)
    chosen = ranked(event.state.asked, deck=DECK, limit=1)[0]
    assert found.first is not None
    assert found.first.plan.candidate.key == chosen.candidate.key
    assert found.best.number != found.first.number
    slower = found.first.measurement.step_seconds / found.best.measurement.step_seconds
    assert found.ahead_of_first == pytest.approx(slower - 1)
    assert found.ahead_of_first > 0.5


def test_it_is_its_own_equal_where_it_is_the_best(events: list[TuneEvent]) -> None:
    found = metrics_at(events[-1])
    assert found.best == found.first
    assert found.ahead_of_first == 0


def test_where_the_first_choice_failed_nothing_is_ahead_of_it(last) -> None:
    found = metrics_at(last(2, First(outcome=Outcome.OOM)))
    assert found.first.measurement.outcome is Outcome.OOM
    assert found.best.number == 2
    assert found.ahead_of_first is None


@pytest.mark.full
def test_errors_of_predictions_shrink_as_the_model_learns(last) -> None:
    event = last(4, StandIn(slowness=3.0))
    found = metrics_at(event)
    assert [error.number for error in found.step_errors] == [1, 2, 3, 4]
    first, *later = found.step_errors
    assert first.proposed == pytest.approx(first.unlearned)
    assert all(error.proposed < 0.5 * error.unlearned for error in later)
    assert found.proposed_error < 0.5 * found.unlearned_error
    assert metrics_at(event, found) == found


def test_nothing_is_known_of_errors_before_a_trial_ran_well(last) -> None:
    found = metrics_at(last(1, StandIn(outcome=Outcome.OOM)))
    assert (found.best, found.step_errors, found.unlearned_error, found.proposed_error) == (None, (), None, None)


def test_hours_of_devices_cost_what_the_profile_says(last) -> None:
    event = last(1, StandIn(trial_seconds=0.05), request=replace(REQUEST, gpus="4xH100"))
    found = metrics_at(event)
    price = event.state.asked.cluster.device.price_per_hour
    assert price * found.device_hours > 0
    assert found.price_dollars == pytest.approx(price * found.device_hours)
    assert metrics_at(replace(event, kind=Kind.SHADOW)).price_dollars is None


def test_devices_without_a_price_cost_nothing_that_is_known(events: list[TuneEvent]) -> None:
    assert metrics_at(events[-1]).price_dollars is None


def test_the_time_left_is_that_of_the_trials_or_of_a_limit(events: list[TuneEvent]) -> None:
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


def test_before_a_trial_has_ended_nobody_knows_the_time_left(events: list[TuneEvent]) -> None:
    assert seconds_left(events[0]) is None
