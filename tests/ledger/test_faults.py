"""Every call on the store fails once, at the first, the second, the third time, until all of a scenario passes."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strategist.contract.measurement import Outcome
from strategist.errors import FileError
from strategist.ledger.database import Database, Row, Transaction
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import State

KEYS = ("a", "b", "c")
LEASE_SECONDS = 0.0
"""Whoever comes next may go on at once with what is left behind."""


class Countdown:
    """Calls until one fails; negative once it has."""

    def __init__(self, calls: int, error: Callable[[], Exception]) -> None:
        self.left, self._error = calls, error

    def call(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error()


class FaultyTransaction:
    """Each statement is a call."""

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
    """Statements are calls, and so are the moments before a commit and after it, when nobody hears that it is done."""

    def __init__(self, database: Database, countdown: Countdown) -> None:
        self._database, self._countdown = database, countdown

    @property
    def place(self) -> str:
        return self._database.place

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
        except Exception as error:  # after the commit nothing of the database's own stands between the fault and the worker
            raise FileError(self.place, str(error)) from None
        return result

    def close(self) -> None:
        self._database.close()


def fault(server: str) -> Callable[[], Exception]:
    """What the store raises when its disk or its connection fails."""
    if not server:
        return lambda: sqlite3.OperationalError("disk I/O error")
    psycopg = pytest.importorskip("psycopg")
    return lambda: psycopg.errors.IoError("could not write to file")


def work(ledger: Ledger, done: dict[int, str]) -> None:
    """A worker's whole life: it proposes all trials, and runs what there is to run. ``done`` is what it was told is kept."""
    ledger.keep("request", "{}")
    for key in KEYS:
        ledger.enqueue(key, f'{{"plan": "{key}"}}', "search")
    while (claim := ledger.claim("worker", LEASE_SECONDS)) is not None:
        ledger.renew(claim, LEASE_SECONDS)
        measurement = f'{{"trial": {claim.number}, "attempt": {claim.attempt}}}'
        if ledger.finish(claim, Outcome.OK, measurement):
            assert claim.number not in done, "a trial was done twice"
            done[claim.number] = measurement


def check(ledger: Ledger, done: dict[int, str]) -> None:
    """Rows are whole, and what was acknowledged is there as it was."""
    trials = {trial.number: trial for trial in ledger.trials()}
    assert sorted(trials) == list(range(1, len(trials) + 1))
    for number, measurement in done.items():
        assert (trials[number].state, trials[number].measurement_json) == (State.FINISHED, measurement)
    for trial in trials.values():
        assert sum(attempt.outcome is Outcome.OK for attempt in trial.attempts) == (trial.state is State.FINISHED)


def test_whatever_call_fails_nothing_is_lost_done_twice_or_stuck(tmp_path: Path, server: str) -> None:
    calls, faults = 0, 0
    while True:
        calls += 1
        folder, done = tmp_path / f"{calls}", dict[int, str]()
        own = f"{server}-{calls}" if server else ""
        countdown = Countdown(calls, fault(server))
        ledger = Ledger.open(folder, create=True, server=own)
        ledger._database = FaultyDatabase(ledger._database, countdown)
        try:
            work(ledger, done)
        except FileError:
            faults += 1
        ledger.close()
        with Ledger.open(folder) as after:
            check(after, done)
            work(after, done)
            check(after, done)
            assert [trial.state for trial in after.trials()] == [State.FINISHED] * len(KEYS)
        if countdown.left > 0:
            break
    assert faults == calls - 1 > 30
