"""Repair creates a new study from the intact rows of a damaged one, with unchanged content."""

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tuner_stand_in import StandIn

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.measurement import Outcome
from strategist.contract.request import Request
from strategist.contract.study import TrialState
from strategist.errors import FileError, InputError
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import TrialRow
from strategist.ledger.sqlite import FILE_NAME
from strategist.tuner.repair import HISTORY, Repaired, repair
from tuner.studies import repeated, tuned

TRIALS = 3


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a few finished trials and a queued trial."""
    folder = tuned(tmp_path_factory.mktemp("intact") / "study", TRIALS)
    with Ledger.open(folder) as ledger:
        ledger.enqueue("another", ledger.trials()[0].plan_json, "search")
    return folder


@pytest.fixture
def study(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "study"))


def edit(study: Path, statement: str) -> None:
    with sqlite3.connect(study / FILE_NAME) as connection:
        connection.execute(statement)
    connection.close()


def content_of(row: TrialRow) -> tuple[object, ...]:
    """The content of a trial, without its number."""
    last = row.attempts[-1] if row.attempts else None
    return row.key, row.plan_json, row.state, row.outcome, last and last.measurement_json


def trials(folder: Path) -> tuple[TrialRow, ...]:
    with Ledger.open(folder) as ledger:
        return ledger.trials()


def test_an_intact_study_is_repaired_unchanged(study: Path, tmp_path: Path) -> None:
    found = repair(study, tmp_path / "new")
    assert found == Repaired(study=str(tmp_path / "new"), kept=TRIALS + 1, from_history=(), queued=(), lost=())
    assert [content_of(row) for row in trials(tmp_path / "new")] == [content_of(row) for row in trials(study)]
    with Ledger.open(tmp_path / "new") as new, Ledger.open(study) as old:
        assert new.facts("") == old.facts("")
    assert (tmp_path / "new" / HISTORY).read_text() == (study / HISTORY).read_text()


def test_a_damaged_result_is_restored_from_the_history(study: Path, tmp_path: Path) -> None:
    before = trials(study)
    edit(study, "UPDATE attempt SET measurement = '{\"step_seconds\": 0.001}' WHERE trial = 2")
    found = repair(study, tmp_path / "new")
    assert (found.kept, found.from_history, found.queued, found.lost) == (TRIALS, (2,), (), ())
    after = trials(tmp_path / "new")
    assert [row.measurement_json for row in after] == [row.measurement_json for row in before]
    assert after[1].outcome is Outcome.OK


def test_a_damaged_repeat_is_restored_from_the_history(tmp_path: Path) -> None:
    study = repeated(tuned(tmp_path / "study", 2))
    keys = [row.key for row in trials(study)]
    edit(study, "UPDATE attempt SET measurement = '{}' WHERE trial = 3")
    found = repair(study, tmp_path / "new")
    assert (found.kept, found.from_history, found.lost) == (2, (3,), ())
    assert [row.key for row in trials(tmp_path / "new")] == keys


def test_a_history_record_of_a_duplicate_candidate_is_lost(study: Path, tmp_path: Path) -> None:
    edit(study, "UPDATE attempt SET measurement = '{}' WHERE trial = 2")
    first, second, *others = map(json.loads, (study / HISTORY).read_text().splitlines())
    lines = (json.dumps(record) for record in (first, {**first, "trial": second["trial"]}, *others))
    (study / HISTORY).write_text("\n".join(lines) + "\n")
    found = repair(study, tmp_path / "new")
    assert (found.kept, found.from_history, found.lost) == (TRIALS, (), (2,))


def test_a_lost_result_is_queued_again(study: Path, tmp_path: Path) -> None:
    edit(study, "UPDATE attempt SET outcome = 'oom' WHERE trial = 2")
    (study / HISTORY).unlink()
    found = repair(study, tmp_path / "new")
    assert (found.kept, found.queued, found.lost) == (TRIALS, (2,), ())
    assert trials(tmp_path / "new")[1].state is TrialState.QUEUED


def test_a_lost_trial_is_named(study: Path, tmp_path: Path) -> None:
    edit(study, "UPDATE trial SET plan = '{}' WHERE number = 3")
    (study / HISTORY).write_text("{torn", encoding="utf-8")
    found = repair(study, tmp_path / "new")
    assert (found.kept, found.lost) == (TRIALS, (3,))


def test_a_running_trial_is_queued_again(study: Path, tmp_path: Path) -> None:
    with Ledger.open(study) as ledger:
        assert ledger.claim("other", 1000.0) is not None
    repair(study, tmp_path / "new")
    last = trials(tmp_path / "new")[-1]
    assert (last.state, last.attempts) == (TrialState.QUEUED, ())


@pytest.mark.full
def test_a_repaired_study_can_be_continued(tmp_path: Path) -> None:
    study = tuned(tmp_path / "study", TRIALS)
    edit(study, "UPDATE attempt SET measurement = '{}' WHERE trial = 1")
    with pytest.raises(FileError, match="trial 1 attempt 1"):
        trials(study)
    repair(study, tmp_path / "new")
    tuned(tmp_path / "new", TRIALS + 1, StandIn())
    assert [row.state for row in trials(tmp_path / "new")] == [TrialState.FINISHED] * (TRIALS + 1)


def test_a_lost_request_can_be_given_again(study: Path, tmp_path: Path) -> None:
    with Ledger.open(study) as ledger:
        given = codec.loads(Request, ledger.fact("request") or "")
    with pytest.raises(InputError, match="still contains its request; leave out --request"):
        repair(study, tmp_path / "new", given)
    edit(study, "DELETE FROM study")
    (study / HISTORY).unlink()
    with pytest.raises(InputError, match="trial 1 is of another workload"):
        repair(study, tmp_path / "new", replace(given, workload=replace(given.workload, seq_len=2 * given.workload.seq_len)))
    assert not (tmp_path / "new").exists()
    assert repair(study, tmp_path / "new", given).kept == TRIALS + 1
    with Ledger.open(tmp_path / "new") as ledger:
        assert codec.loads(Request, ledger.fact("request") or "") == given


def test_a_study_beyond_repair_is_refused_in_one_line(study: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is there already"):
        repair(study, study)
    with pytest.raises(FileError, match="does not exist"):
        repair(tmp_path, tmp_path / "new")
    edit(study, "UPDATE study SET value = '{}' WHERE key = 'request'")
    with pytest.raises(FileError, match="what the study was asked cannot be read any more: say it again"):
        repair(study, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (study / FILE_NAME).write_bytes(b"no database at all")
    with pytest.raises(FileError, match="damaged beyond repair"):
        repair(study, tmp_path / "new")


def test_the_command_reports_kept_restored_and_lost_trials(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(study, "UPDATE trial SET plan = '{}' WHERE number = 3")
    edit(study, "UPDATE attempt SET measurement = '{}' WHERE trial = 1")
    lines = (study / HISTORY).read_text(encoding="utf-8").splitlines(keepends=True)
    (study / HISTORY).write_text(lines[0], encoding="utf-8")
    assert main(["study", "repair", str(study), "--into", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{TRIALS - 1} trials are as they were, in {tmp_path / 'new'}",
        "1 were read from history.jsonl; their numbers were 1",
        "1 are lost; their numbers were 3",
    ]
    assert main(["study", "repair", str(study), "--into", str(study)]) == 2
    edit(study, "DELETE FROM study")
    (tmp_path / "asked.yaml").write_text("model: 8b\ngpus: 8xH100\n")
    command = ["study", "repair", str(study), "--into", str(tmp_path / "newer"), "--request", str(tmp_path / "asked.yaml")]
    capsys.readouterr()
    assert main(command) == 2
    assert "is of another model; correct the file of --request" in " ".join(capsys.readouterr().err.split())
