"""Watching a study."""

from pathlib import Path

import pytest
from ledger.workers import start
from postgres_server import postgres_full_only
from tuner_stand_in import StandIn

from strategist.contract.study import StudyStatus
from strategist.errors import FileError
from strategist.ledger.ledger import Ledger
from strategist.tuner.watch import watch
from tuner.studies import tuned


@postgres_full_only
def test_each_trial_of_another_process_is_reported_once(tmp_path: Path, server: str) -> None:
    study = tuned(tmp_path / "study", 1, server=server)
    (study / "result.json").unlink()
    tuner = start(tuned, study, 3, StandIn(trial_seconds=0.1))
    reported: list[int] = []
    ended = watch(study, lambda _, fresh: reported.extend(trial.number for trial in fresh), idle_seconds=120.0)
    assert sorted(reported) == [1, 2, 3]
    assert ended.status is StudyStatus.FINISHED
    assert (study / "result.json").exists()  # the watch ended with the tuning
    tuner.join()
    assert tuner.exitcode == 0


def test_an_idle_study_is_reported_and_the_watch_ends(tmp_path: Path) -> None:
    study = tuned(tmp_path / "study", 3)
    reported: list[int] = []
    assert watch(study, lambda _, fresh: reported.extend(trial.number for trial in fresh), idle_seconds=0.0).best is not None
    assert reported == [1, 2, 3]


def test_a_missing_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no study"):
        watch(tmp_path, lambda *_: None)
    Ledger.open(tmp_path, create=True).close()
    with pytest.raises(FileError, match="holds no request"):
        watch(tmp_path, lambda *_: None)


def test_each_report_has_the_best_so_far(tmp_path: Path) -> None:
    study = tuned(tmp_path / "study", 3)
    best: list[int] = []
    watch(study, lambda seen, _: best.append(seen.best), idle_seconds=0.0)
    assert best
    assert set(best) <= {1, 2, 3}
