"""Following a study."""

from pathlib import Path

import pytest
from ledger.workers import start
from postgres_server import server_in_full
from tuner_stand_in import StandIn

from strategist.contract.study import StudyStatus
from strategist.errors import FileError
from strategist.ledger.ledger import Ledger
from strategist.tuner.watch import watch
from tuner.studies import tuned


@server_in_full
def test_each_trial_of_another_process_is_told_once_until_that_ends(tmp_path: Path, server: str) -> None:
    study = tuned(tmp_path / "study", 1, server=server)
    (study / "result.json").unlink()
    tuner = start(tuned, study, 3, StandIn(trial_seconds=0.1))
    told: list[int] = []
    ended = watch(study, lambda _, fresh: told.extend(trial.number for trial in fresh), idle_seconds=120.0)
    assert sorted(told) == [1, 2, 3]
    assert ended.status is StudyStatus.FINISHED
    assert (study / "result.json").exists()  # it did not wait for nothing
    tuner.join()
    assert tuner.exitcode == 0


def test_what_nobody_runs_is_told_and_over(tmp_path: Path) -> None:
    study = tuned(tmp_path / "study", 3)
    told: list[int] = []
    assert watch(study, lambda _, fresh: told.extend(trial.number for trial in fresh), idle_seconds=0.0).best is not None
    assert told == [1, 2, 3]


def test_a_study_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no study"):
        watch(tmp_path, lambda *_: None)
    Ledger.open(tmp_path, create=True).close()
    with pytest.raises(FileError, match="holds no request"):
        watch(tmp_path, lambda *_: None)


def test_the_best_so_far_is_known_to_whoever_is_told(tmp_path: Path) -> None:
    study = tuned(tmp_path / "study", 3)
    best: list[int] = []
    watch(study, lambda seen, _: best.append(seen.best), idle_seconds=0.0)
    assert best
    assert set(best) <= {1, 2, 3}
