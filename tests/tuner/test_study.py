"""Reading and finding studies."""

from pathlib import Path

import pytest
from postgres_server import PostgresServer, postgres_full_only
from tuner_stand_in import StandIn

from strategist.contract import codec
from strategist.contract.measurement import Outcome
from strategist.contract.study import Study, StudyStatus
from strategist.errors import FileError
from strategist.ledger.ledger import Ledger
from strategist.ledger.sqlite import FILE_NAME
from strategist.tuner.study import find, read, summary
from tuner.studies import REQUEST, tuned


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("studies") / "deep" / "first", 3)


def test_a_study_has_its_trials_and_the_best(folder: Path) -> None:
    study = read(folder)
    assert (study.request.model, study.status, [trial.number for trial in study.trials]) == (
        "tiny",
        StudyStatus.FINISHED,
        [1, 2, 3],
    )
    assert study.best_trial.measurement.step_seconds == min(trial.measurement.step_seconds for trial in study.trials)
    assert all(trial.started <= trial.ended for trial in study.trials)
    assert codec.loads(Study, codec.dumps(study)) == study


@postgres_full_only
def test_the_status_of_a_study_follows_its_leases(tmp_path: Path, server: str) -> None:
    study = tuned(tmp_path / "study", 1, server=server)
    with Ledger.open(study) as ledger:
        ledger.enqueue("another", ledger.trials()[0].plan_json, "test")
        assert read(study).status is StudyStatus.WAITING
        claim = ledger.claim("w", 1000.0)
        assert read(study).status is StudyStatus.RUNNING
        ledger.renew(claim, -1.0)
        assert read(study).status is StudyStatus.WAITING
        ledger.finish(claim, Outcome.CRASH, ledger.trials()[0].measurement_json)
    assert read(study).status is StudyStatus.FINISHED


def test_a_study_without_a_successful_trial_has_no_best(tmp_path: Path) -> None:
    study = tuned(tmp_path, 1, StandIn(outcome=Outcome.CRASH))
    assert read(study).best_trial is None
    assert summary(study).best_step_seconds is None


def test_studies_are_found_below_a_folder_and_damaged_ones_have_a_reason(folder: Path, tmp_path: Path) -> None:
    top = folder.parents[1]
    broken = top / "broken"
    broken.mkdir()
    (broken / FILE_NAME).write_text("no database, but long enough to be read as one" * 40)
    Ledger.open(top / "new", create=True).close()
    found = list(find(top))
    assert found == [top / "broken", folder, top / "new"]
    first, second, third = map(summary, found)
    assert "is damaged or not a study" in first.problem
    assert (second.problem, second.model, second.gpus, second.trials, second.finished) == ("", REQUEST.model, REQUEST.gpus, 3, 3)
    assert second.best_tokens_per_second == read(folder).best_trial.measurement.tokens_per_second
    assert "holds no request" in third.problem
    assert list(find(tmp_path)) == []
    with pytest.raises(FileError, match="is not a folder"):
        list(find(tmp_path / "nowhere"))


@pytest.mark.full
def test_the_studies_of_a_server_are_found(tmp_path: Path, postgres: PostgresServer) -> None:
    place = postgres.study()
    tuned(tmp_path / "study", 1, server=place)
    found = list(find(postgres.address))
    assert place in found
    assert summary(place).finished == 1
