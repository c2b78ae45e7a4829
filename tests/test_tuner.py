"""The tuning loop: proposals, calibration, limits, and kills without lost or repeated trials."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from postgres_server import postgres_full_only
from tuner_stand_in import REQUEST, SETTINGS, StandIn, truth

from strategist.cards.deck import Deck, load_deck
from strategist.cards.reader import read_card
from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import settings_of
from strategist.contract.study import REPEAT, TrialState
from strategist.cost.calibration import Calibration
from strategist.errors import InputError
from strategist.executors.executor import TrialRunner
from strategist.executors.local import LocalExecutor
from strategist.files import yaml_file
from strategist.ledger.address import ADDRESS_FILE
from strategist.ledger.ledger import Ledger
from strategist.ledger.sqlite import FILE_NAME
from strategist.paths import data_dir
from strategist.planning.planner import price_candidate, ranked
from strategist.profiles import history
from strategist.profiles.situation import situation
from strategist.search.tuning_result import TuningResult
from strategist.tuner import tune as loop
from strategist.tuner.event import EventType, TuneEvent
from strategist.tuner.finalists import REPEAT_LENGTH
from strategist.tuner.limits import Limits
from strategist.tuner.proposals import CRASH
from strategist.tuner.tune import tune

STAND_IN = str(Path(__file__).with_name("tuner_stand_in.py"))
NATIVE = situation(replace(REQUEST, backend="native"))
EAGER = """
StrategyCard:
  id: A-1
  module: recompute
  intent: Recompute whatever happened.
  policies:
    - {id: always, phase: observe, when: observed.mfu >= 0, try: {recompute: full}, because: A test.}
"""


@pytest.fixture(scope="module")
def deck() -> Deck:
    return load_deck(data_dir("cards"))


@dataclass(frozen=True, kw_only=True)
class Study:
    """A tuned study: its folder, its result and its events."""

    folder: Path
    result: TuningResult
    events: list[TuneEvent]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, deck: Deck) -> Study:
    """A study of six trials on a machine that is three times as slow as predicted."""
    folder, events = tmp_path_factory.mktemp("study"), list[TuneEvent]()
    runner = TrialRunner(executor=StandIn(slowness=3.0), settings=SETTINGS)
    limits = Limits(trials=6, confirm=0)
    result = tune(REQUEST, study=folder, limits=limits, runner=runner, deck=deck, on_event=events.append)
    return Study(folder=folder, result=result, events=events)


@pytest.fixture
def run(tmp_path: Path, deck: Deck) -> Callable[..., TuningResult]:
    """``run(trials, executor)`` tunes the same request in the same folder."""

    def tuned(
        trials: int, executor: StandIn | None = None, request: Request = REQUEST, cards: Deck = deck, limits=None, **more
    ) -> TuningResult:
        limits = Limits(trials=trials, **{"confirm": 0, **(limits or {})})
        study, executor = tmp_path / "study", executor or StandIn()
        return tune(
            request, study=study, limits=limits, runner=TrialRunner(executor=executor, settings=SETTINGS), deck=cards, **more
        )

    return tuned


def attempts(study: Path) -> list[str]:
    """Started attempts, as number-attempt."""
    return sorted(path.parent.name for path in study.glob("trials/*/begun"))


def test_the_best_prediction_is_tried_first_and_no_candidate_twice(study: Study, deck: Deck) -> None:
    keys = [trial.plan.candidate.key for trial in study.result.trials]
    assert keys[0] == ranked(NATIVE, deck=deck, limit=1)[0].candidate.key
    assert len(set(keys)) == 6
    assert attempts(study.folder) == ["1-1", "2-1", "3-1", "4-1", "5-1", "6-1"]


def test_the_study_folder_contains_result_plan_calibration_and_history(study: Study) -> None:
    folder, result = study.folder, study.result
    assert codec.load(TuningResult, folder / "result.json") == result
    assert codec.load(Plan, folder / "best-plan.json") == result.best.plan
    assert codec.load(Calibration, folder / "calibration.json") == result.calibration_after
    kept = history.read(folder / "history.jsonl")
    assert [(record.plan, record.measurement) for record in kept.records] == [
        (item.plan, item.measurement) for item in result.trials
    ]
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_tried_plan_is_the_complete_plan_of_its_candidate(study: Study, deck: Deck) -> None:
    """A search ranks outlines of plans, which have no reasons, back ends and ids."""
    plan = study.result.trials[0].plan
    assert plan == price_candidate(NATIVE, plan.candidate, deck=deck)


def test_the_best_trial_is_the_fastest(study: Study) -> None:
    result = study.result
    assert result.best.measurement.step_seconds == min(trial.measurement.step_seconds for trial in result.trials)


def test_calibration_reduces_prediction_errors(study: Study) -> None:
    result = study.result
    assert result.errors_before.trials == result.errors_after.trials == result.errors_left_out.trials == 6
    assert result.errors_before.step_seconds > 0.5
    assert result.errors_after.step_seconds < 0.3 * result.errors_before.step_seconds
    assert result.errors_after.step_seconds <= result.errors_left_out.step_seconds < 0.5 * result.errors_before.step_seconds
    assert result.calibration_before != result.calibration_after


def test_every_third_trial_tests_a_card(study: Study) -> None:
    result = study.result
    tests = [trial for trial in result.trials if trial.proposed_by.startswith("test:")]
    assert [trial.number for trial in tests] == [3, 6]
    with_evidence = {f"test:{item.card}/{item.policy}" for item in result.evidence}
    assert {trial.proposed_by for trial in tests} <= with_evidence
    assert len({trial.proposed_by for trial in tests}) == 2


def test_deadlines_grow_with_the_predicted_step(run) -> None:
    given = []

    class Recorder(StandIn):
        def execute(self, plan, folder, settings, on_event=None):
            given.append((plan.estimate.step_seconds, settings))
            return super().execute(plan, folder, settings, on_event)

    long = replace(REQUEST, workload=replace(REQUEST.workload, seq_len=4096, global_batch=256))
    run(1, Recorder(), request=long)
    ((step_seconds, settings),) = given
    assert settings.step_timeout_seconds == 10 * step_seconds > SETTINGS.step_timeout_seconds
    assert settings.wall_timeout_seconds > (settings.steps + settings.warmup_steps) * settings.step_timeout_seconds


def test_after_out_of_memory_larger_candidates_are_avoided(run, deck: Deck) -> None:
    def peak(candidate) -> float:
        return price_candidate(NATIVE, candidate, deck=deck).estimate.peak_memory_bytes

    limit = peak(ranked(NATIVE, deck=deck, limit=1)[0].candidate)
    result = run(3, StandIn(oom_bytes=limit))
    assert [trial.measurement.outcome for trial in result.trials] == [Outcome.OOM] + [Outcome.OK] * 2
    assert all(peak(trial.plan.candidate) < limit for trial in result.trials[1:])


def test_a_proposal_of_a_card_is_tried_next_and_once(run) -> None:
    request = replace(REQUEST, fix=REQUEST.fix | {"tp": 1, "cp": 1, "ep": 1})  # without laws, there are many more candidates
    result = run(3, cards=Deck((read_card(yaml_file.parse(EAGER)),)), request=request)
    first, second, third = result.trials
    assert [trial.proposed_by for trial in result.trials] == ["search", "card:A-1/always", "search"]
    assert settings_of(second.plan.candidate) == settings_of(first.plan.candidate) | {"knobs.recompute": "full"}
    assert third.plan.candidate != second.plan.candidate


def test_a_study_resumes_where_it_stopped(run, tmp_path: Path) -> None:
    one = run(1)
    assert run(1) == one
    three = run(3)
    assert three.trials[:1] == one.trials
    assert attempts(tmp_path / "study") == ["1-1", "2-1", "3-1"]


def test_events_of_a_tuning_are_sent_in_order(study: Study) -> None:
    events = study.events
    trial = [EventType.STARTED, *[EventType.PROGRESS] * SETTINGS.steps, EventType.ENDED]
    assert [event.event_type for event in events] == [EventType.BEGUN, *trial * 6, EventType.OVER]
    steps = [event.trial for event in events if event.event_type in (EventType.STARTED, EventType.PROGRESS)]
    assert steps == [number for number in range(1, 7) for _ in trial[:-1]]
    assert {event.trial for event in events if event.event_type not in (EventType.STARTED, EventType.PROGRESS)} == {None}
    assert {event.trials for event in events} == {6}
    assert {event.progress.phase for event in events if event.progress} == {"measure"}
    assert [len(event.state.results) for event in events if event.event_type is EventType.ENDED] == [1, 2, 3, 4, 5, 6]
    assert events[0].state.best is None
    assert events[-1].state.best is not None
    assert any(event.expected_gain for event in events)


def test_a_running_trial_is_part_of_the_events_study(study: Study) -> None:
    started = [event for event in study.events if event.event_type is EventType.STARTED]
    assert [event.state.rows[event.trial - 1].state for event in started] == [TrialState.RUNNING] * 6


def test_another_request_is_refused_with_its_differences(run) -> None:
    run(1)
    run(1, request=replace(REQUEST, backend="native"))
    other = replace(REQUEST, workload=replace(REQUEST.workload, seq_len=256), fix={**REQUEST.fix, "tp": 2})
    with pytest.raises(InputError, match="seq_len was 128, is 256, tp was free, is 2; use a new study folder") as caught:
        run(2, request=other)
    assert "\n" not in str(caught.value)


def test_another_model_of_the_same_name_is_refused(run, tmp_path: Path) -> None:
    shape = "{name: mine, layers: 2, hidden_size: 64, heads: 4, kv_heads: 4, head_size: 16, ffn_size: %d, vocab_size: 512}"
    file = tmp_path / "model.yaml"
    file.write_text(shape % 128)
    request = replace(REQUEST, model=str(file))
    run(1, request=request)
    file.write_text(shape % 256)
    with pytest.raises(InputError, match="described otherwise"):
        run(2, request=request)


def test_a_request_that_does_not_fit_is_refused_before_any_file_is_written(run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="GiB") as caught:
        run(2, request=replace(REQUEST, model="32b", gpus="4x24GB", host_memory_bytes=64 * 2**30))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "study").exists()


def test_a_tuning_ends_below_the_least_gain_and_resumes_with_a_lower_one(run) -> None:
    soon = run(60, limits={"least_gain": 0.2})
    assert len(soon.trials) < 30
    assert "no candidate is expected to be better than the best by more than" in soon.ended
    assert len(run(len(soon.trials) + 1).trials) == len(soon.trials) + 1


def test_no_trial_starts_when_the_device_hours_are_used_up(run) -> None:
    first = run(60, StandIn(trial_seconds=0.05), limits={"device_hours": 1e-6})
    assert len(first.trials) == 1
    assert "device hours are used up" in first.ended
    assert run(60, limits={"device_hours": 1e-6}).trials == first.trials


def test_close_finalists_run_again_alternately_and_longer(run, tmp_path: Path) -> None:
    lengths: dict[str, int] = {}

    def note(folder: Path) -> float:
        lengths[folder.name] = 0
        return 1.0

    result = run(2, StandIn(slowness=0.0, luck=note), limits={"confirm": 2})  # all take 10 ms
    repeats = [trial for trial in result.trials if trial.proposed_by == REPEAT]
    assert len(result.trials) == 2 + 4
    assert [trial.plan.id for trial in repeats[:2]] == [trial.plan.id for trial in repeats[2:]]
    assert all(trial.measurement.steps_measured == REPEAT_LENGTH * SETTINGS.steps for trial in repeats)
    assert result.confirmation.pairs == (0.0, 0.0)
    assert not result.confirmation.conclusive
    assert len(run(2, limits={"confirm": 2}).trials) == 6  # resuming adds no repeats


def test_a_lucky_first_measurement_does_not_win(run) -> None:
    result = run(2, StandIn(slowness=0.0, luck=lambda folder: 0.96 if folder.name == "2-1" else 1.0), limits={"confirm": 2})
    assert result.best.plan.candidate.key != result.trials[1].plan.candidate.key or result.best.measurement.step_seconds > 0.0099
    assert result.best.measurement.step_seconds == pytest.approx(0.01)


def test_a_pruned_trial_keeps_its_measurement(deck: Deck, tmp_path: Path) -> None:
    slow = StandIn(luck=lambda folder: 1.0 if folder.name == "1-1" else 20.0)
    result = tune(
        REQUEST, study=tmp_path / "study", limits=Limits(trials=3),
        runner=TrialRunner(executor=slow, settings=replace(SETTINGS, steps=8)), deck=deck,
    )  # fmt: skip
    first, *others = result.trials
    assert first.measurement.outcome is Outcome.OK
    assert [trial.measurement.outcome for trial in others] == [Outcome.PRUNED] * 2
    assert all(
        trial.measurement.steps_measured == 3 and "after 3 of 8 steps" in trial.measurement.evidence.message for trial in others
    )
    assert result.best.number == 1
    assert codec.load(Measurement, tmp_path / "study/trials/2-1/measurement.json") == others[0].measurement


@pytest.mark.full
def test_a_crashing_setting_is_identified_and_avoided(run) -> None:
    def crashes(plan: Plan) -> bool:
        return (
            plan.candidate.layout.world_size == 4 and settings_of(plan.candidate)["knobs.reshard_after_forward"] is crashing_value
        )

    request = replace(REQUEST, fix={"micro_batch": 2, "pp": 1, "loss_parallel": False})
    first = run(1, request=request).trials[0]
    crashing_value = not settings_of(first.plan.candidate)["knobs.reshard_after_forward"]
    result = run(16, StandIn(crashes=crashes), request)
    (cause,) = result.crash_causes
    assert cause.settings == {"knobs.reshard_after_forward": crashing_value}
    known = max(cause.crashed)
    assert [trial for trial in result.trials if trial.number > known and crashes(trial.plan)] == []
    assert any(trial.proposed_by.startswith(CRASH) for trial in result.trials)


@pytest.mark.parametrize("sampler", [*(pytest.param(name, marks=pytest.mark.full) for name in ("order", "random")), "tpe"])
def test_every_sampler_proposes_trials(run, sampler: str) -> None:
    result = run(3, limits={"sampler": sampler})
    assert [trial.measurement.outcome for trial in result.trials] == [Outcome.OK] * 3


def test_a_small_space_is_tried_completely_and_its_finalists_run_again(run) -> None:
    fix = {"dp_shard": 4, "micro_batch": 1, "reshard_after_forward": True, "no_sync": False}
    result = run(50, StandIn(slowness=0.0), request=replace(REQUEST, fix=fix), limits={"confirm": 1})
    assert 0 < len(result.trials) < 50
    assert result.ended == "every candidate that fits was tried"
    assert all(trial.plan.candidate.layout.dp_shard == 4 for trial in result.trials)
    assert any(trial.proposed_by == REPEAT for trial in result.trials)


def test_an_interrupt_saves_results_and_releases_the_trial(run, tmp_path: Path) -> None:
    def interrupt(folder: Path) -> None:
        if folder.name == "2-1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(5, StandIn(before=interrupt))
    assert len(codec.load(TuningResult, tmp_path / "study/result.json").trials) == 1
    with Ledger.open(tmp_path / "study") as ledger:
        assert [trial.state for trial in ledger.trials()] == [TrialState.FINISHED, TrialState.QUEUED]
    assert len(run(2).trials) == 2


def test_a_permanent_refusal_ends_the_tuning_with_its_message(run, tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        raise InputError("torch", "is not installed", "install it")

    with pytest.raises(InputError, match="torch: is not installed"):
        run(2, StandIn(before=refuse))
    assert len(run(2).trials) == 2
    assert attempts(tmp_path / "study") == ["1-1", "1-2", "2-1"]


def test_a_trial_taken_over_by_another_tuner_is_abandoned(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LEASE_SECONDS", 0.0)

    def take_over(folder: Path) -> None:
        if folder.name == "1-1":
            with Ledger.open(tmp_path / "study") as other:
                claim = other.claim("other", 60.0)
                plan = codec.loads(Plan, claim.plan_json)
                other.finish(claim, Outcome.OK, codec.dumps(StandIn(slowness=7.0).execute(plan, tmp_path / "other", SETTINGS)))

    result = run(2, StandIn(before=take_over))
    first, second = (trial.measurement.step_seconds / truth(trial.plan).step_seconds for trial in result.trials)
    assert first > 6 > second


def start(study: Path, trials: int, trial_seconds: float, server: str = "", tuners: int = 1) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, STAND_IN, str(study), str(trials), str(trial_seconds), server, str(tuners)])


def finished(study: Path) -> dict[int, tuple[int, str | None]]:
    """Attempt and measurement of the finished trials."""
    if not any((study / name).exists() for name in (FILE_NAME, ADDRESS_FILE)):
        return {}
    with Ledger.open(study, create=True) as ledger:
        return {trial.number: (trial.attempt, trial.measurement_json) for trial in ledger.trials() if trial.outcome}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("seed", "kills"), [(1, 2), pytest.param(2, 5, marks=pytest.mark.full)])
@postgres_full_only
def test_a_repeatedly_killed_tuner_loses_and_repeats_no_trial(tmp_path: Path, seed: int, kills: int, server: str) -> None:
    """Each tuner is killed at a random moment after its first attempt began; finished trials must not change."""
    trials, chance = kills + 3, random.Random(seed)
    for _ in range(kills):
        before = finished(tmp_path)
        begun = set(attempts(tmp_path))
        tuner = start(tmp_path, trials, 0.2, server)
        while set(attempts(tmp_path)) == begun and tuner.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.6))
        tuner.kill()
        tuner.wait()
        after = finished(tmp_path)
        assert {number: after.get(number) for number in before} == before
    before = finished(tmp_path)
    assert start(tmp_path, trials, 0.0, server).wait() == 0
    end = finished(tmp_path)
    assert sorted(end) == list(range(1, trials + 1))
    assert {number: end[number] for number in before} == before
    result = codec.load(TuningResult, tmp_path / "result.json")
    assert len({trial.plan.candidate.key for trial in result.trials}) == trials
    assert set(attempts(tmp_path)) <= {f"{number}-{last}" for number, (most, _) in end.items() for last in range(1, most + 1)}


@pytest.mark.timeout(120)
@postgres_full_only
def test_two_tuners_share_one_study(tmp_path: Path, server: str) -> None:
    tuners = [start(tmp_path, 4, 0.0, server, tuners=2) for _ in range(2)]
    assert [tuner.wait() for tuner in tuners] == [0, 0]
    assert attempts(tmp_path) == [f"{number}-1" for number in range(1, 5)]
    with Ledger.open(tmp_path) as ledger:
        rows = ledger.trials()
    assert len({row.attempts[0].owner for row in rows}) == 2
    assert len({row.key for row in rows}) == 4


@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.full
def test_a_real_tuning_on_four_ranks(tmp_path: Path, deck: Deck) -> None:
    result = tune(
        REQUEST,
        study=tmp_path,
        limits=Limits(trials=3, confirm=0),
        runner=TrialRunner(executor=LocalExecutor(), settings=TrialSettings(steps=4, warmup_steps=1)),
        deck=deck,
    )
    outcomes = [trial.measurement.outcome for trial in result.trials]
    assert outcomes == [Outcome.OK] * 3, [trial.measurement.evidence for trial in result.trials]
    assert result.best.measurement.tokens_per_second > 0
    assert result.errors_after.step_seconds < result.errors_before.step_seconds


def test_a_plan_refused_by_simulation_does_not_count_as_a_trial(run, tmp_path: Path) -> None:
    plans = iter((Kind.SIMULATED, Kind.REAL, Kind.SIMULATED, Kind.REAL, Kind.REAL))

    class Doubtful(StandIn):
        def execute(self, plan: Plan, folder: Path, *more) -> Measurement:
            measured = super().execute(plan, folder, *more)
            if next(plans) is Kind.REAL:
                return measured
            large = (int(2 * plan.estimate.capacity_bytes),)
            return Measurement(plan_id=plan.id, kind=Kind.SIMULATED, outcome=Outcome.OOM, peak_memory_bytes=large)

    events: list[TuneEvent] = []
    result = run(3, Doubtful(), on_event=events.append)
    kinds = [trial.measurement.kind for trial in result.trials if trial.measurement]
    assert kinds == [Kind.SIMULATED, Kind.REAL, Kind.SIMULATED, Kind.REAL, Kind.REAL]
    assert result.best is not None
    assert result.best.number in (2, 4, 5)
    assert result.calibration_after.trials == 3
    assert (events[0].trials, events[-1].trials) == (3, 5)
    assert run(3, StandIn()).trials == result.trials
