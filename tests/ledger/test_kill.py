"""Many processes on one ledger, killed at any instant: no acknowledged result is lost, no trial runs twice or stays stuck."""

import os
import signal
import sqlite3
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from chaos import Chaos
from ledger.workers import Work, audit, busy_processors, enqueue, finish, kill_at_random, notes, run_workers, start
from postgres_server import postgres_full_only

from strategist.contract.measurement import Outcome
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim
from strategist.ledger.sqlite import FILE_NAME


@pytest.mark.chaos("The store", "one claim per trial, 16 processes at once")
def test_sixteen_processes_claim_each_trial_exactly_once(tmp_path: Path, server: str, chaos: Chaos) -> None:
    trials, processes = chaos.size(64, 1000), 16
    enqueue(tmp_path, server, trials)
    _, errors = run_workers(Work(folder=tmp_path), processes)
    claims = Counter(number for number, _, _ in notes(tmp_path, "claimed"))
    doubled = sum(count > 1 for count in claims.values())
    assert (errors, doubled, sorted(claims)) == (0, 0, list(range(1, trials + 1)))
    with Ledger.open(tmp_path) as ledger:
        assert ledger.counts().outcomes == {Outcome.OK: trials}
    chaos.found(f"{doubled} claimed twice of {trials:,} by {processes} processes")


@pytest.mark.chaos("The store", "acknowledged results under kill -9 at random moments")
@pytest.mark.parametrize("workers", [8, pytest.param(16, marks=pytest.mark.full)])
@postgres_full_only
def test_workers_killed_at_random_lose_no_acknowledged_result(tmp_path: Path, server: str, workers: int, chaos: Chaos) -> None:
    work = Work(folder=tmp_path, lease_seconds=1.0, trial_seconds=0.006, proposes=True)
    enqueue(tmp_path, server, workers)
    kills, chance, killed = chaos.size(20, 250 if server else 1500), chaos.random(), set[str]()
    while not (killed and notes(tmp_path, "acknowledged") and running(tmp_path)):  # some kills landed between claim and finish
        killed |= kill_at_random(
            work, workers, kills, chance, longest_seconds=0.12 if server else 0.04
        )  # a connection takes longer
    finish(replace(work, proposes=False))
    found = audit(tmp_path, killed)
    assert min(found.acknowledged, found.given_up) > 0
    assert (found.lost, found.doubled, found.stuck, found.not_retried) == (0, 0, 0, 0)
    if not server:
        with sqlite3.connect(tmp_path / FILE_NAME) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
    chaos.found(f"{found.lost} lost of {found.acknowledged:,} acknowledged, {found.doubled} done twice, {found.stuck} stuck")
    chaos.found(f"{len(killed):,} kills of {workers} tuners, {found.given_up:,} of them within a trial")


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.chaos("The store", "one retry per lost attempt, no retry of a living tuner's trial, all processors busy")
def test_only_trials_of_killed_workers_are_run_again_and_each_once(tmp_path: Path, server: str, chaos: Chaos) -> None:
    """Trials last longer than leases, which are a sixth of a tuner's default."""
    trials, workers = chaos.size(16, 200 if server else 1000), 16
    work = Work(folder=tmp_path, lease_seconds=5.0, trial_seconds=6.0)
    enqueue(tmp_path, server, trials)
    with busy_processors():
        killed = kill_at_random(work, workers, trials // 8, chaos.random(), longest_seconds=2.0, spare=True)
    finish(replace(work, trial_seconds=0.0))
    found = audit(tmp_path, killed)
    assert found.given_up > 0, "no kill landed within a trial"
    assert (found.of_living, found.lost, found.doubled, found.stuck, found.not_retried) == (0, 0, 0, 0, 0)
    chaos.found(f"{found.of_living} of living tuners declared lost, {trials:,} trials of {work.trial_seconds:.0f} s by {workers}")
    chaos.found(f"{found.given_up} of killed ones, {found.not_retried} of these not run again, {found.doubled} twice")


def running(folder: Path) -> int:
    """Trials that are claimed and not finished."""
    with Ledger.open(folder) as ledger:
        return ledger.counts().running


class _Sleeper(Work):
    """A worker that is stopped in its trial, and does not notice after it continues."""

    def _held_lease(self, ledger: Ledger, claim: Claim) -> bool:
        os.kill(os.getpid(), signal.SIGSTOP)
        return True


@postgres_full_only
def test_a_worker_stopped_beyond_its_lease_is_fenced_and_continues(tmp_path: Path, server: str) -> None:
    enqueue(tmp_path, server, 1)
    sleeper = start(_Sleeper(folder=tmp_path, lease_seconds=0.5).run, "sleeper")
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    with Ledger.open(tmp_path) as ledger:
        while (claim := ledger.claim("other", 60.0)) is None:
            time.sleep(0.02)
        os.kill(sleeper.pid, signal.SIGCONT)
        sleeper.join()
        assert sleeper.exitcode == 0
        assert notes(tmp_path, "acknowledged") == []
        assert ledger.finish(claim, Outcome.OOM, '"mine"')
        (trial,) = ledger.trials()
    assert (trial.outcome, trial.measurement_json) == (Outcome.OOM, '"mine"')
    assert trial.attempts[0].late_json == '"sleeper-1-1"'


def _open_and_enqueue(folder: Path, server: str, name: str) -> None:
    with Ledger.open(folder / "study", create=True, server=server) as ledger:
        ledger.set_fact("request", "the same")
        for number in range(10):
            ledger.enqueue(f"candidate {number}", "{}", name)


def test_eight_processes_create_one_study_together(tmp_path: Path, server: str) -> None:
    workers = [start(_open_and_enqueue, tmp_path, server, f"w{index}") for index in range(8)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    with Ledger.open(tmp_path / "study") as ledger:
        assert sorted(trial.key for trial in ledger.trials()) == sorted(f"candidate {number}" for number in range(10))


def _create_forever(folder: Path, server: str) -> None:
    for index in range(10**6):
        Ledger.open(folder / str(index), create=True, server=own_address(server, folder, index)).close()


def own_address(server: str, folder: Path, index: object) -> str:
    return server and f"{server}-{folder.name}-{index}"


@postgres_full_only
def test_a_creator_killed_at_any_instant_leaves_a_usable_folder(tmp_path: Path, server: str) -> None:
    for round_number in range(10):
        creator = start(_create_forever, tmp_path / str(round_number), server)
        time.sleep(0.01 + 0.006 * round_number)
        creator.kill()
        creator.join()
    for folder in tmp_path.glob("*/*"):
        with Ledger.open(folder, create=True, server=own_address(server, folder.parent, folder.name)) as ledger:
            assert ledger.enqueue("a", "{}", "") == 1
