"""Many processes on one ledger, killed at any instant: nothing acknowledged is lost, nothing runs twice, nothing stays stuck."""

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strategist.contract.measurement import Outcome
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim, State
from strategist.ledger.sqlite import FILE_NAME

FORK = multiprocessing.get_context("fork")


def note(log: Path, claim: Claim, said: str) -> None:
    """Appends one line that a kill cannot tear: a single write of a few bytes."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{claim.number} {claim.attempt} {said}\n".encode())
    os.close(descriptor)


def notes(folder: Path, kind: str) -> list[tuple[int, int, str]]:
    lines = [line.split() for log in folder.glob(f"*.{kind}") for line in log.read_text().splitlines()]
    return [(int(number), int(attempt), said) for number, attempt, said in lines]


def work(folder: Path, name: str, lease_seconds: float, pause_seconds: float) -> None:
    """Claims, runs and finishes until nothing is left, noting each claim and each acknowledged result beside the ledger."""
    with Ledger.open(folder) as ledger:
        while claim := ledger.claim(name, lease_seconds):
            note(folder / f"{name}.claimed", claim, name)
            time.sleep(pause_seconds)
            value = f"{name}-{claim.number}-{claim.attempt}"
            if ledger.finish(claim, Outcome.OK, json.dumps(value)):
                note(folder / f"{name}.acknowledged", claim, value)


def start(target: Callable[..., None], *args: object) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=target, args=args)
    process.start()
    return process


def enqueue(folder: Path, server: str, trials: int) -> None:
    with Ledger.open(folder, create=True, server=server) as ledger:
        for number in range(trials):
            ledger.enqueue(f"candidate {number}", '{"plan": 0}', "test")


@pytest.mark.timeout(120)
def test_eight_processes_claim_each_trial_exactly_once(tmp_path: Path, server: str):
    enqueue(tmp_path, server, 200)
    workers = [start(work, tmp_path, f"w{index}", 60.0, 0.0) for index in range(8)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert sorted(number for number, _, _ in notes(tmp_path, "claimed")) == list(range(1, 201))
    with Ledger.open(tmp_path) as ledger:
        assert ledger.counts().outcomes == {Outcome.OK: 200}


@pytest.mark.timeout(120)
def test_workers_killed_at_random_lose_nothing_that_was_acknowledged(tmp_path: Path, server: str):
    seed = random.randrange(10**6)
    print("seed", seed)  # shown when the test fails
    chance, kills, workers = random.Random(seed), 0, {}
    trials, kills_wanted, slower = (1000, 30, 3) if server else (1500, 80, 1)  # a connection takes its time
    enqueue(tmp_path, server, trials)
    while kills < kills_wanted:
        while len(workers) < 4:
            name = f"w{kills}-{len(workers)}-{chance.random():.6f}"
            workers[name] = start(work, tmp_path, name, 0.3, 0.006)
        time.sleep(slower * chance.uniform(0.005, 0.03))
        victim = workers.pop(chance.choice(sorted(workers)))
        kills += victim.is_alive()
        victim.kill()
        victim.join()
    for worker in workers.values():
        worker.kill()
        worker.join()

    acknowledged = notes(tmp_path, "acknowledged")
    with Ledger.open(tmp_path) as ledger:
        found = ledger.trials()
    results = {(t.number, t.attempt): t.measurement_json for t in found if t.state is State.FINISHED}
    assert any(t.state is State.RUNNING or len(t.attempts) > 1 for t in found)  # kills did land between claim and finish
    assert acknowledged
    for number, attempt, value in acknowledged:
        assert results[number, attempt] == json.dumps(value)
    claims = [(number, attempt) for number, attempt, _ in notes(tmp_path, "claimed")]
    assert len(claims) == len(set(claims))

    time.sleep(0.4)
    work(tmp_path, "survivor", 60.0, 0.0)
    with Ledger.open(tmp_path) as ledger:
        assert ledger.claim("anyone", 1.0) is None
        counts = ledger.counts()
        assert (counts.queued, counts.running, counts.finished) == (0, 0, trials)
        for trial in ledger.trials():
            finals = [attempt for attempt in trial.attempts if attempt.outcome is Outcome.OK]
            assert len(finals) == (trial.outcome is Outcome.OK)
    if not server:
        with sqlite3.connect(tmp_path / FILE_NAME) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


@pytest.mark.timeout(60)
def test_a_worker_that_sleeps_past_its_lease_is_fenced_and_lives_on(tmp_path: Path, server: str):
    enqueue(tmp_path, server, 1)
    sleeper = start(work, tmp_path, "sleeper", 0.5, 0.2)
    while not (tmp_path / "sleeper.claimed").exists():
        time.sleep(0.005)
    os.kill(sleeper.pid, signal.SIGSTOP)
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
        ledger.set_study("request", "the same")
        for number in range(10):
            ledger.enqueue(f"candidate {number}", "{}", name)


@pytest.mark.timeout(60)
def test_eight_processes_create_one_study_together(tmp_path: Path, server: str):
    workers = [start(_open_and_enqueue, tmp_path, server, f"w{index}") for index in range(8)]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    with Ledger.open(tmp_path / "study") as ledger:
        assert sorted(trial.key for trial in ledger.trials()) == sorted(f"candidate {number}" for number in range(10))


def _create_for_ever(folder: Path, server: str) -> None:
    for index in range(10**6):
        Ledger.open(folder / str(index), create=True, server=_own(server, folder, index)).close()


def _own(server: str, folder: Path, index: object) -> str:
    return server and f"{server}-{folder.name}-{index}"


@pytest.mark.timeout(60)
def test_a_creator_killed_at_any_instant_leaves_a_folder_that_can_be_used(tmp_path: Path, server: str):
    for round_number in range(20):
        creator = start(_create_for_ever, tmp_path / str(round_number), server)
        time.sleep(0.01 + 0.003 * round_number)
        creator.kill()
        creator.join()
    for folder in tmp_path.glob("*/*"):
        with Ledger.open(folder, create=True, server=_own(server, folder.parent, folder.name)) as ledger:
            assert ledger.enqueue("a", "{}", "") == 1
