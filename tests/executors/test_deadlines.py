"""Deadlines of the start, of a step and of the whole trial; independent of the wall clock."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract.measurement import TrialSettings
from strategist.executors.deadlines import FAILURE_GRACE_SECONDS, Deadline, Watch

SETTINGS = TrialSettings(init_timeout_seconds=10.0, step_timeout_seconds=3.0, wall_timeout_seconds=100.0)


class Trial:
    """Two ranks whose files are written by the test, and a watch with given times."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.watch = Watch(folder, 2, SETTINGS, now=0.0)

    def move(self, rank: int, phase: str) -> None:
        """Replaces the phase file like the runtime; the time in the file is ignored."""
        self.count += 1
        path = self.folder / f"rank-{rank}.phase"
        draft = path.with_suffix(".draft")
        draft.write_text(f"{phase} 0.0\n")
        os.utime(draft, ns=(self.count, self.count))
        draft.replace(path)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_ranks_that_never_start_exceed_the_start_deadline(trial: Trial):
    assert trial.watch.look(9.9) is None
    assert trial.watch.look(10.1) is Deadline.INIT


def test_a_rank_that_is_still_building_exceeds_the_start_deadline(trial: Trial):
    trial.move(0, "measure")
    trial.move(1, "build")
    assert trial.watch.look(9.9) is None  # the step deadline does not apply yet
    assert trial.watch.look(10.1) is Deadline.INIT
    assert trial.watch.straggler == 1


def test_the_step_deadline_counts_from_the_last_progress_of_any_rank(trial: Trial):
    for rank in (0, 1):
        trial.move(rank, "warm-up")
    assert trial.watch.look(50.0) is None
    trial.move(1, "measure")
    assert trial.watch.look(52.9) is None
    assert trial.watch.look(55.8) is None
    assert trial.watch.look(56.0) is Deadline.STEP
    assert trial.watch.straggler == 0


def test_the_first_step_has_the_start_deadline(trial: Trial):
    for rank in (0, 1):
        trial.move(rank, "warm-up")
    assert trial.watch.look(50.0) is None
    assert trial.watch.look(59.9) is None
    assert trial.watch.look(60.1) is Deadline.STEP
    (trial.folder / "progress.jsonl").write_text('{"step": 0}\n')
    assert trial.watch.look(53.1) is Deadline.STEP


def test_the_whole_trial_has_a_deadline(trial: Trial):
    for now in range(0, 100, 2):
        for rank in (0, 1):
            trial.move(rank, "measure")
        assert trial.watch.look(float(now)) is None
    trial.move(0, "measure")
    assert trial.watch.look(100.1) is Deadline.WALL


def test_peers_of_a_failed_rank_have_a_grace_period(trial: Trial):
    for rank in (0, 1):
        trial.move(rank, "measure")
    (trial.folder / "rank-1.exit").write_text("-9 1.5\n")
    assert trial.watch.look(1.0) is None
    for now in (2.0, 4.0, 1.0 + FAILURE_GRACE_SECONDS):
        trial.move(0, "measure")
        assert trial.watch.look(now) is None
    assert trial.watch.look(1.1 + FAILURE_GRACE_SECONDS) is Deadline.PEERS
    assert trial.watch.straggler == 0  # the other has ended
    assert trial.watch.ended() == {1}


def test_a_launcher_with_restarts_left_has_no_grace_period(trial: Trial):
    trial.watch = Watch(trial.folder, 2, SETTINGS, now=0.0, restarts=1)
    for attempt in range(2):
        begun = 50.0 * attempt
        for rank in (0, 1):
            trial.move(rank, "measure")
        (trial.folder / "rank-1.exit").write_text("-9 1.5\n")
        assert trial.watch.look(begun) is None
        trial.move(0, "measure")
        assert trial.watch.look(begun + FAILURE_GRACE_SECONDS + 0.1) is (Deadline.PEERS if attempt else None)
        (trial.folder / "rank-1.exit").unlink()
        (trial.folder / "rank-1.restarts").write_text("1")
        trial.watch.look(begun + 20.0)


def test_a_rank_that_ended_normally_starts_no_grace_period(trial: Trial):
    trial.move(0, "measure")
    trial.move(1, "done")
    (trial.folder / "rank-1.exit").write_text("0 1.5\n")
    for now in (2.0, 4.0, 6.0, 8.0):
        trial.move(0, "measure")
        assert trial.watch.look(now) is None


def test_the_step_is_read_from_the_last_complete_line(trial: Trial):
    assert trial.watch.progress(0.0).step is None
    (trial.folder / "progress.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"ste')
    assert trial.watch.progress(0.0).step == 1
    (trial.folder / "progress.jsonl").write_text("[]\n")
    assert trial.watch.progress(0.0).step is None


def test_restarted_ranks_have_a_new_start_deadline(trial: Trial):
    for rank in (0, 1):
        trial.move(rank, "measure")
    (trial.folder / "rank-1.exit").write_text("-9 1.5\n")
    assert trial.watch.look(50.0) is None
    (trial.folder / "rank-1.exit").unlink()
    for rank in (0, 1):
        (trial.folder / f"rank-{rank}.restarts").write_text("1")
    assert trial.watch.look(54.0) is None
    assert trial.watch.look(54.0 + SETTINGS.init_timeout_seconds - 0.1) is None
    assert trial.watch.look(54.1 + SETTINGS.init_timeout_seconds) is Deadline.INIT
    assert trial.watch.restarts == 1


def test_saving_has_a_longer_deadline(trial: Trial):
    for rank in (0, 1):
        trial.move(rank, "measure")
    assert trial.watch.look(1.0) is None
    trial.move(0, "save")
    assert trial.watch.look(2.0) is None
    assert trial.watch.look(60.0) is None
    trial.move(0, "measure")
    assert trial.watch.look(61.0) is None
    assert trial.watch.look(64.1) is Deadline.STEP


def test_a_training_has_no_deadline_for_the_whole(trial: Trial):
    watch = Watch(trial.folder, 2, replace(SETTINGS, wall_timeout_seconds=None), 0.0)
    for now in range(0, 1000, 2):
        for rank in (0, 1):
            trial.move(rank, "measure")
        assert watch.look(float(now)) is None
