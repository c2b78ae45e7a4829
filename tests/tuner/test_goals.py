"""Studies with several objectives and with constraints."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from postgres_server import postgres_full_only
from tuner_stand_in import SETTINGS, StandIn, truth

from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import REPEAT
from strategist.errors import InputError
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.planning.planner import ranked
from strategist.profiles.situation import situation
from strategist.search.pareto_front import undominated
from strategist.search.tuning_result import TuningResult
from strategist.tuner.export import export
from strategist.tuner.import_trials import import_file, merge
from strategist.tuner.limits import Limits
from strategist.tuner.study import read
from strategist.tuner.tune import tune
from tuner.studies import DECK, REQUEST, WIDE, tuned

BOTH = Goals(objectives=("throughput", "memory"))
LIMITED = replace(BOTH, least_tokens_per_second=16_000.0)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., TuningResult]:
    """``run(trials, goals)`` tunes the same request in the same folder."""

    def run(trials: int, goals: Goals | None = None, executor: StandIn | None = None, **more: Any) -> TuningResult:
        limits = Limits(trials=trials, **more.pop("limits", {"confirm": 0}))
        how = {"request": REQUEST, "study": tmp_path / "study", **more}
        runner = TrialRunner(executor=executor or StandIn(), settings=SETTINGS)
        result = tune(**how, limits=limits, runner=runner, deck=DECK, goals=goals)
        assert result_of(how["study"]) == result
        return result

    return run


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of both objectives."""
    return tuned(tmp_path_factory.mktemp("goals") / "both", 4, goals=BOTH)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of both objectives with a constraint that some trials violate."""
    return tuned(tmp_path_factory.mktemp("goals") / "limited", 3, goals=LIMITED)


def result_of(study: Path) -> TuningResult:
    return codec.load(TuningResult, study / "result.json")


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, ...]:
    return ranked(situation(replace(REQUEST, backend="native")), deck=DECK)


def spent(plan: Plan) -> tuple[float, float]:
    """True step seconds and peak memory of the stand-in executor."""
    return truth(plan).step_seconds, truth(plan).peak_memory_bytes


def test_the_front_contains_the_undominated_trials_and_the_best(both: Path) -> None:
    result = result_of(both)
    shown = [BOTH.measured(trial.plan, trial.measurement) for trial in result.trials]
    assert result.front == tuple(result.trials[place].number for place in undominated(shown))
    assert len(result.front) > 2
    assert result.best.number in result.front
    assert result.best.measurement.step_seconds == min(seconds for seconds, _ in shown)
    study = read(both)
    assert (study.goals, study.front, study.best, study.nearest) == (BOTH, result.front, result.best.number, None)
    assert [trial.number for trial in study.trials if trial.front] == list(result.front)


@pytest.mark.full
def test_half_of_the_space_finds_most_of_the_front(run) -> None:
    plans = ranked(situation(replace(WIDE, backend="native")), deck=DECK)
    front = {plans[place].candidate for place in undominated([spent(plan) for plan in plans])}
    result = run(len(plans) // 2, BOTH, request=WIDE)
    found = {trial.plan.candidate for trial in result.trials}
    assert len(front & found) >= 0.8 * len(front)


def test_trials_with_several_objectives_are_not_pruned(both: Path) -> None:
    assert {trial.measurement.outcome for trial in result_of(both).trials} == {Outcome.OK}


@pytest.mark.full
def test_finalists_are_compared_by_the_requests_objective(run) -> None:
    result = run(2, BOTH, StandIn(slowness=0.001), limits={"confirm": 1})  # all take 10 ms, so the best is in doubt
    repeats = [trial for trial in result.trials if trial.proposed_by == REPEAT]
    assert repeats
    assert result.confirmation.best == result.best.number
    assert len(set(result.front)) == len(result.front)


class Fuller(StandIn):
    """An executor whose trials take twice the expected memory."""

    def execute(self, plan: Plan, *more: Any) -> Measurement:
        measured = super().execute(plan, *more)
        return replace(measured, peak_memory_bytes=tuple(2 * peak for peak in measured.peak_memory_bytes))


@pytest.mark.full
@pytest.mark.parametrize("objectives", [("throughput",), ("throughput", "memory")])
def test_a_trial_that_violates_a_constraint_is_neither_best_nor_on_the_front(
    run, plans: tuple[Plan, ...], tmp_path: Path, objectives: tuple[str, ...]
) -> None:
    capacity = plans[0].estimate.capacity_bytes
    expected = sorted(spent(plan)[1] for plan in plans)
    headroom = 1 - (1.2 * expected[-1] if len(objectives) == 1 else 2.3 * expected[0]) / capacity  # the first trial takes more
    result = run(7, Goals(objectives=objectives, headroom=headroom), Fuller())
    peaks = {trial.number: max(trial.measurement.peak_memory_bytes) for trial in result.trials}
    missing = {number for number, peak in peaks.items() if peak > (1 - headroom) * capacity}
    kept = [trial for trial in result.trials if trial.number not in missing]
    assert missing
    assert result.best.number == min(kept, key=lambda trial: trial.measurement.step_seconds).number
    assert not missing & set(result.front)
    assert {trial.number for trial in read(tmp_path / "study").trials if trial.misses == ("headroom",)} == missing
    assert all(trial.measurement.outcome is Outcome.OK for trial in result.trials)


@pytest.mark.full
def test_a_tuning_ends_when_no_candidate_is_expected_to_enlarge_the_front(run, plans: tuple[Plan, ...]) -> None:
    result = run(len(plans), BOTH, limits={"confirm": 0, "least_gain": 0.02})
    assert 2 < len(result.trials) < len(plans)
    assert "no candidate is expected to enlarge the front by more than" in result.ended


def test_the_nearest_trial_is_named_if_all_violate_constraints(run, tmp_path: Path) -> None:
    result = run(2, Goals(least_tokens_per_second=1e9))
    fastest = max(result.trials, key=lambda trial: trial.measurement.tokens_per_second)
    assert (result.best, result.front, result.nearest) == (None, (), fastest.number)
    assert read(tmp_path / "study").nearest == fastest.number
    assert not (tmp_path / "study/best-plan.json").exists()


@postgres_full_only
def test_a_study_keeps_its_goals(run, tmp_path: Path, server: str) -> None:
    goals = replace(BOTH, headroom=0.25)
    first = run(1, goals, server=server)
    again = run(2)
    assert again.goals == goals
    assert again.trials[:1] == first.trials
    assert again.front
    assert run(2, goals).front == again.front
    with pytest.raises(InputError, match="other goals: objectives was throughput and memory, is throughput; leave") as caught:
        run(2, Goals(headroom=0.25))
    assert "\n" not in str(caught.value)
    with Ledger.open(tmp_path / "study") as ledger:
        assert codec.loads(Goals, ledger.fact("goals")) == goals


def test_a_study_with_one_objective_refuses_further_objectives(run, tmp_path: Path) -> None:
    tuned(tmp_path / "study", 1)
    with pytest.raises(InputError, match="was started with other goals: objectives was throughput, is throughput and memory"):
        run(2, BOTH)


@pytest.mark.full
def test_imported_trials_can_be_tuned_for_any_goals(run, both: Path, tmp_path: Path) -> None:
    export(both, str(tmp_path / "t.csv"))
    import_file(tmp_path / "t.csv", tmp_path / "new", deck=DECK, request=REQUEST)
    assert read(tmp_path / "new").front == ()
    result = run(4, BOTH, study=tmp_path / "new")
    assert result.front == read(both).front


def test_studies_of_other_goals_are_not_merged(both: Path, tmp_path: Path) -> None:
    tuned(tmp_path / "plain", 1)
    with pytest.raises(InputError, match=r"has other goals than .*objectives was throughput and memory, is throughput"):
        merge([both, tmp_path / "plain"], tmp_path / "all")
    merge([both], tmp_path / "same")
    assert read(tmp_path / "same").goals == BOTH


@pytest.mark.parametrize(
    ("goals", "words"),
    [
        (Goals(objectives=("throughput", "energy")), "--pareto energy: the power limit of a .* is unknown"),
        (Goals(objectives=("memory",)), "must begin with that of the request, throughput"),
        (Goals(most_cost=1.0), "--most-cost: the price of a .* is unknown"),
    ],
)
def test_impossible_goals_are_refused_before_any_file_is_written(run, tmp_path: Path, goals: Goals, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(2, goals)
    assert not (tmp_path / "study").exists()


def test_tables_mark_the_front_and_violated_constraints(limited: Path, tmp_path: Path) -> None:
    result = result_of(limited)
    export(limited, str(tmp_path / "t.csv"))
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["number"]) for row in rows if row["front"] == "true"] == list(result.front)
    slow = [str(trial.number) for trial in result.trials if trial.measurement.tokens_per_second < 16_000]
    assert [row["number"] for row in rows if row["misses"] == "tokens/s"] == slow
    assert 0 < len(slow) < len(rows)
    assert not {str(number) for number in (*result.front, result.best.number)} & set(slow)


def test_objectives_and_constraints_are_exported_to_optuna(limited: Path, tmp_path: Path) -> None:
    result = result_of(limited)
    export(limited, f"sqlite:///{tmp_path / 'o.db'}")
    loaded = optuna.load_study(study_name="limited", storage=f"sqlite:///{tmp_path / 'o.db'}")
    assert loaded.metric_names == ["step_seconds", "peak_memory_bytes"]
    assert sorted(trial.user_attrs["number"] for trial in loaded.best_trials) == list(result.front)
    for exported, trial in zip(loaded.trials, result.trials, strict=True):
        assert exported.values == list(BOTH.measured(trial.plan, trial.measurement))
        assert (exported.constraints["step"] > 0) == (trial.measurement.tokens_per_second < 16_000)
