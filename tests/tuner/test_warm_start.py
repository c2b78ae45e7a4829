"""Warm start of a study with trials from another cluster."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import postgres_full_only
from report.samples import rendered
from tuner_stand_in import SETTINGS, StandIn

from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.errors import FileError, InputError
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.report.study import study_report
from strategist.search.tuning_result import TuningResult
from strategist.tuner.limits import Limits
from strategist.tuner.study import read as read_study
from strategist.tuner.tune import tune
from strategist.tuner.warm_start import read
from tuner.studies import DECK, REQUEST, tuned

LARGER = replace(REQUEST, gpus="8xcpu")
ANOTHER_DEVICE = replace(REQUEST, gpus="8x24GB")
Warmed = Callable[..., TuningResult]


def replicates(plan: Plan) -> bool:
    """Whether a plan uses replicas only, which the cost model ranks best."""
    layout = plan.candidate.layout
    return layout.dp_shard == layout.tp == 1


class Stalling(StandIn):
    """An executor in which replicas are three times as slow as predicted."""

    def execute(self, plan: Plan, *more) -> Measurement:
        measured = super().execute(plan, *more)
        return replace(measured, step_seconds=3 * (measured.step_seconds or 0)) if replicates(plan) else measured


@pytest.fixture
def warmed(tmp_path: Path) -> Warmed:
    """``warmed(trials, *places)`` tunes on another cluster, warm-started from the studies at ``places``."""

    def run(trials: int, *places: object, request: Request = LARGER, executor: StandIn | None = None, study="here", server=""):
        warm = read([str(place) for place in places], Kind.REAL, "surrogate")
        return tune(
            request, study=tmp_path / study, limits=Limits(trials=trials, confirm=0),
            runner=TrialRunner(executor=executor or Stalling(), settings=SETTINGS),
            deck=DECK, warm=warm, server=server,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def source_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study on four devices."""
    return tuned(tmp_path_factory.mktemp("there") / "study", 2, Stalling())


@pytest.mark.parametrize(
    "request_here", [pytest.param(LARGER, id="larger"), pytest.param(ANOTHER_DEVICE, id="another device", marks=pytest.mark.full)]
)
def test_a_candidate_slow_in_the_source_study_is_not_tried_first(warmed: Warmed, source_study: Path, request_here: Request) -> None:
    cold, warm = warmed(1, request=request_here, study="cold"), warmed(1, source_study, request=request_here)
    assert replicates(cold.trials[0].plan)
    assert not replicates(warm.trials[0].plan)


@pytest.mark.full
def test_own_trials_outweigh_the_warm_start(warmed: Warmed, source_study: Path) -> None:
    cold, warm = warmed(1, study="cold", executor=StandIn()), warmed(5, source_study, executor=StandIn())
    assert warm.best.plan.candidate == cold.best.plan.candidate


@pytest.mark.full
def test_a_uniform_slowdown_of_the_source_study_has_no_effect(warmed: Warmed, tmp_path: Path) -> None:
    slow = tuned(tmp_path / "slow", 2, StandIn(slowness=4.0))
    cold, warm = warmed(1, study="cold"), warmed(1, slow)
    assert warm.trials[0].plan == cold.trials[0].plan
    assert warm.calibration_before == cold.calibration_before


@pytest.mark.full
def test_a_study_keeps_a_copy_of_its_warm_start(warmed: Warmed, tmp_path: Path, server: str) -> None:
    source_study = tuned(tmp_path / "there", 2, Stalling())
    whole = warmed(3, source_study, study="whole")
    first = warmed(1, source_study, server=server)
    tuned(source_study, 3)  # the source study continues
    second = warmed(2, source_study)
    shutil.rmtree(source_study)
    third = warmed(3)
    plans = [trial.plan for trial in whole.trials]
    for result in (first, second, third):
        assert [trial.plan for trial in result.trials] == plans[: len(result.trials)]
    (source,) = read_study(tmp_path / "here").warmed_by
    assert (source.model, source.gpus, source.trials) == ("tiny", "4xcpu", 2)
    assert "warmed by 2 trials of tiny on 4xcpu" in rendered(study_report(read_study(tmp_path / "here")))


@pytest.mark.full
def test_failures_of_the_source_study_are_avoided(warmed: Warmed, tmp_path: Path) -> None:
    failing = tuned(tmp_path / "failing", 2, StandIn(outcome=Outcome.CRASH))
    assert replicates(warmed(1, study="cold").trials[0].plan)
    assert not replicates(warmed(1, failing).trials[0].plan)


def test_several_studies_can_warm_start_one_study(warmed: Warmed, source_study: Path, tmp_path: Path) -> None:
    other = tuned(tmp_path / "other", 1, request=replace(REQUEST, gpus="2xcpu"))
    warmed(1, source_study, other, source_study)
    assert {each.gpus for each in read_study(tmp_path / "here").warmed_by} == {"2xcpu", "4xcpu"}


@postgres_full_only
def test_a_study_cannot_warm_start_itself(warmed: Warmed, tmp_path: Path, server: str) -> None:
    warmed(1, server=server)
    with pytest.raises(InputError, match="is the study itself") as caught:
        warmed(2, tmp_path / "here")
    assert "\n" not in str(caught.value)


def test_a_source_study_without_usable_trials_is_refused(source_study: Path, tmp_path: Path) -> None:
    new, lost, shadows = tmp_path / "new", tmp_path / "lost", Kind.SHADOW
    Ledger.open(new, create=True).close()
    with pytest.raises(InputError, match="5 trials failed for the same reason"):
        tuned(lost, 5, StandIn(outcome=Outcome.INFRASTRUCTURE))
    for place, kind, sampler, message in (
        (tmp_path / "nowhere", Kind.REAL, "surrogate", "there is no study in this folder"),
        (new, Kind.REAL, "surrogate", "holds no request"),
        (lost, Kind.REAL, "surrogate", "has no finished trial whose outcome depends on its plan"),
        (source_study, shadows, "surrogate", "holds real trials, this study shadow ones"),
        (source_study, Kind.REAL, "tpe", "--sampler tpe: takes in nothing of other studies"),
    ):
        with pytest.raises((InputError, FileError), match=message) as caught:
            read([place], kind, sampler)
        assert "\n" not in str(caught.value)
