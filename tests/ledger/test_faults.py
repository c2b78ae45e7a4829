"""Each call to the database fails once: the first, the second, the third, and so on, until the scenario passes."""

import errno
import os
import platform
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chaos import Chaos
from ledger.refused import NUMBERS, OF_A_DISK, OF_A_NETWORK, Refusal
from ledger.workers import start
from postgres_server import postgres_full_only

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.errors import FileError
from strategist.ledger.database import Database, Row, Transaction
from strategist.ledger.ledger import Ledger

KEYS = ("a", "b", "c")
LEASE_SECONDS = 0.0
"""Leases expire at once, so the next worker can continue immediately."""


class Countdown:
    """Runs ``happens`` at the n-th call; ``left`` is zero or negative afterwards."""

    def __init__(self, calls: int, happens: Callable[[], None]) -> None:
        self.left, self._happens = calls, happens

    def call(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._happens()


class FaultyTransaction:
    """A transaction whose statements count as calls."""

    def __init__(self, transaction: Transaction, countdown: Countdown) -> None:
        self._transaction, self._countdown = transaction, countdown

    @property
    def now(self) -> float:
        return self._transaction.now

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        self._countdown.call()
        return self._transaction.rows(statement, values)

    def run(self, statement: str, values: Sequence[object] = ()) -> None:
        self._countdown.call()
        self._transaction.run(statement, values)


class FaultyDatabase:
    """A database whose statements count as calls, as do the moments before a commit and after (its acknowledgement is lost)."""

    def __init__(self, database: Database, countdown: Countdown) -> None:
        self._database, self._countdown = database, countdown

    @property
    def name(self) -> str:
        return self._database.name

    def read(self, work: Callable[[Any], Any]) -> Any:
        return self._database.read(lambda transaction: work(FaultyTransaction(transaction, self._countdown)))

    def write(self, work: Callable[[Any], Any]) -> Any:
        def faulty(transaction: Transaction) -> Any:
            result = work(FaultyTransaction(transaction, self._countdown))
            self._countdown.call()
            return result

        result = self._database.write(faulty)
        try:
            self._countdown.call()
        except Exception as error:  # after the commit the database does not translate the error
            raise FileError(self.name, str(error)) from None
        return result

    def close(self) -> None:
        self._database.close()


def fault(server: str) -> Callable[[], None]:
    """Raises the error of a database whose disk or connection fails."""

    def of_a_file() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def of_a_server() -> None:
        raise pytest.importorskip("psycopg").errors.IoError("could not write to file")

    return of_a_server if server else of_a_file


def work(ledger: Ledger, done: Callable[[int, str], None]) -> None:
    """A worker: proposes all trials and runs them. ``done`` receives each acknowledged result."""
    ledger.set_default("request", "{}")
    for key in KEYS:
        ledger.enqueue(key, f'{{"plan": "{key}"}}', "search")
    while (claim := ledger.claim("worker", LEASE_SECONDS)) is not None:
        ledger.renew(claim, LEASE_SECONDS)
        measurement = f'{{"trial": {claim.number}, "attempt": {claim.attempt}}}'
        if ledger.finish(claim, Outcome.OK, measurement):
            done(claim.number, measurement)


class Done(dict[int, str]):
    """Measurements of finished trials, by number."""

    def add(self, number: int, measurement: str) -> None:
        assert number not in self, "a trial was done twice"
        self[number] = measurement


def check(ledger: Ledger, done: Done) -> None:
    """Checks that rows are complete, and that every acknowledged result is unchanged."""
    trials = {trial.number: trial for trial in ledger.trials()}
    assert sorted(trials) == list(range(1, len(trials) + 1))
    for number, measurement in done.items():
        assert (trials[number].state, trials[number].measurement_json) == (TrialState.FINISHED, measurement)
    for trial in trials.values():
        assert sum(attempt.outcome is Outcome.OK for attempt in trial.attempts) == (trial.state is TrialState.FINISHED)


def resume(folder: Path, done: Done, server: str = "") -> None:
    """After a fault, a new worker finds all acknowledged results and runs the remaining trials."""
    with Ledger.open(folder, create=True, server=server) as after:
        check(after, done)
        work(after, done.add)
        check(after, done)
        assert [trial.state for trial in after.trials()] == [TrialState.FINISHED] * len(KEYS)


@postgres_full_only
@pytest.mark.chaos("The store", "a fault at the n-th call, n = 1, 2, 3, ... until all calls pass")
def test_a_failing_call_loses_repeats_and_blocks_no_trial(tmp_path: Path, server: str, chaos: Chaos) -> None:
    calls, tried, faults, chance = 1, 0, 0, chaos.random()
    while True:
        folder, done = tmp_path / f"{calls}", Done()
        countdown = Countdown(calls, fault(server))
        ledger = Ledger.open(folder, create=True, server=server and f"{server}-{calls}")
        ledger._database = FaultyDatabase(ledger._database, countdown)
        try:
            work(ledger, done.add)
        except FileError:
            faults += 1
        ledger.close()
        resume(folder, done)
        if countdown.left > 0:
            break
        calls, tried = calls + chance.randrange(chaos.size(4, 1)) + 1, tried + 1
    assert faults == tried > chaos.size(15, 30)
    chaos.found(f"{faults} of {faults} calls: nothing lost, done twice or stuck, each time a typed error")


ALL_CALLS_PASSED, TYPED_ERROR, CALL_NOT_NEEDED = 10, 11, 12
"""Exit codes of a worker: all calls passed before the refusal began; an error names the study; no refused call was needed.
Any other error is exit code 1."""


def until_refused(folder: Path, server: str, refusal: Refusal, calls: int, log: int) -> None:
    """A worker whose system calls are refused from its n-th call on; opening the ledger is the first call."""
    countdown = Countdown(calls, refusal.begin)
    if server:
        from strategist.ledger import postgres

        postgres.RECONNECT_SECONDS = 0.1
    try:
        countdown.call()
        with Ledger.open(folder, create=True, server=server) as ledger:
            ledger._database = FaultyDatabase(ledger._database, countdown)
            work(ledger, lambda number, measurement: os.write(log, f"{number} {measurement}\n".encode()) and None)
    except FileError as error:
        os._exit(TYPED_ERROR if (server or str(folder)) in str(error) else 1)
    os._exit(ALL_CALLS_PASSED if countdown.left > 0 else CALL_NOT_NEEDED)


IN_EVERY_RUN = (Refusal(calls=("pwrite64",), error=errno.ENOSPC), Refusal(calls=("recvfrom",), error=errno.ECONNRESET))


def refusals() -> Iterator[Any]:
    for server, kinds in (("sqlite", OF_A_DISK), ("postgres", OF_A_NETWORK)):
        for refusal in kinds:
            marks = () if refusal in IN_EVERY_RUN else pytest.mark.full
            yield pytest.param(server, refusal, id=f"{server}-{refusal}", marks=marks)


@pytest.mark.skipif(platform.machine() not in NUMBERS, reason="numbers of system calls are known for other processors only")
@pytest.mark.chaos("The store", "a system call refused from the n-th call on, n = 1, 2, 3, ... until all calls pass")
@pytest.mark.parametrize(("server", "refusal"), [*refusals()], indirect=["server"])
def test_a_refused_system_call_loses_repeats_and_blocks_no_trial(
    tmp_path: Path, server: str, refusal: Refusal, chaos: Chaos
) -> None:
    calls, reported, unneeded, chance = 1, 0, 0, chaos.random()
    while True:
        folder, own, done = tmp_path / f"{calls}", server and f"{server}-{calls}", Done()
        log = os.open(tmp_path / f"{calls}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        worker = start(until_refused, folder, own, refusal, calls, log)
        worker.join()
        os.close(log)
        for line in (tmp_path / f"{calls}.log").read_text().splitlines():
            number, _, measurement = line.partition(" ")
            done.add(int(number), measurement)
        resume(folder, done, own)
        assert worker.exitcode in (ALL_CALLS_PASSED, TYPED_ERROR, CALL_NOT_NEEDED), "no typed error"
        if worker.exitcode == ALL_CALLS_PASSED:
            break
        reported, unneeded = reported + (worker.exitcode == TYPED_ERROR), unneeded + (worker.exitcode == CALL_NOT_NEEDED)
        calls += chance.randrange(chaos.size(20, 1)) + 1
    assert reported > 0
    chaos.found(f"{reported} of {reported + unneeded} refusals reported as a typed error, {unneeded} had no effect")
    chaos.found("nothing lost, done twice or stuck at any")
