"""Ledger: the memory of one study. Any number of processes share it, each with a Ledger of its own.

A trial is claimed for a time (its lease) under an attempt number. Who lets the lease run out loses the trial to the next claim, and
what they report afterwards is kept beside the attempt but changes nothing. So a worker may die at any instant: an acknowledged
result stays, and an unfinished trial is run again.
"""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from strategist.contract.measurement import Outcome
from strategist.errors import FileError, InputError
from strategist.ledger.database import NOW, connect, failures, writing
from strategist.ledger.rows import MAX_ATTEMPTS, RETRIED, AttemptRow, Claim, Counts, State, TrialRow, as_history, seal

FILE_NAME = "study.sqlite"
TRIAL = "number, key, plan, proposed_by, state, attempt, owner, lease_until"
ATTEMPT = "trial, attempt, owner, started, ended, outcome, measurement, late"


class Ledger:
    """One connection to the ledger of a study; belongs to the thread that opened it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, folder: str | Path, create: bool = False) -> "Ledger":
        """The ledger in ``folder``; with ``create`` folder and ledger come into being where they are missing.

        Raises:
            FileError: there is none, it is damaged, or a newer strategist wrote it.
            InputError: the folder lies on a network file system.
        """
        place = Path(folder).resolve()
        if create:
            try:
                place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(place, f"cannot be created: {error.strerror}") from None
        path = place / FILE_NAME
        return cls(path, connect(path, create))

    def close(self) -> None:
        """Gives the file back."""
        self._connection.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def set_study(self, key: str, text: str) -> None:
        """Writes a fact about the study, once; writing it again must say the same.

        Raises:
            InputError: the study already says something else.
        """
        with writing(self._connection, self.path) as db:
            db.execute("INSERT OR IGNORE INTO study VALUES (?1, ?2, seal(?1, ?2))", (key, text))
        if self.study(key) != text:
            raise InputError(f"study {self.path.parent}: {key}", "was started with another value", "use a new study folder")

    def study(self, key: str) -> str | None:
        """A fact about the study; None when nobody wrote it."""
        with failures(self.path):
            row = self._connection.execute("SELECT key, value, checksum FROM study WHERE key = ?", (key,)).fetchone()
        return self._sound(row, f"study {key}")[1] if row else None

    def enqueue(self, key: str, plan_json: str, proposed_by: str) -> int:
        """Queues a plan under the digest of its candidate; a digest already known keeps its trial. Returns the trial's number."""
        json.loads(plan_json)
        with writing(self._connection, self.path) as db:
            if known := db.execute("SELECT number FROM trial WHERE key = ?", (key,)).fetchone():
                return int(known[0])
            number = int(db.execute("SELECT coalesce(max(number), 0) + 1 FROM trial").fetchone()[0])
            db.execute(
                f"INSERT INTO trial ({TRIAL}, checksum) VALUES (?, ?, ?, ?, ?, 0, NULL, NULL, '')",
                (number, key, plan_json, proposed_by, State.QUEUED),
            )
            self._seal_trial(number)
            return number

    def claim(self, owner: str, lease_seconds: float, last: int | None = None) -> Claim | None:
        """The next trial to run: the first queued one, else the first whose lease ran out; None when there is neither.

        With ``last`` only trials up to that number are claimed, so that several tuners keep to one budget.
        """
        with writing(self._connection, self.path) as db:
            self._give_up_expired()
            row = db.execute(
                f"""SELECT {TRIAL}, checksum FROM trial WHERE (state = 'queued' OR (state = 'running' AND lease_until < {NOW}))
                AND (?1 IS NULL OR number <= ?1) ORDER BY state = 'running', number LIMIT 1""",
                (last,),
            ).fetchone()
            if row is None:
                return None
            number, _, plan_json, _, state, attempt, _, _ = self._sound(row, f"trial {row[0]}")
            if state == State.RUNNING:
                self._close_attempt(number, attempt, Outcome.LOST, None)
            claim = Claim(number=number, attempt=attempt + 1, plan_json=plan_json)
            db.execute(
                f"UPDATE trial SET state = 'running', attempt = ?, owner = ?, lease_until = {NOW} + ? WHERE number = ?",
                (claim.attempt, owner, lease_seconds, number),
            )
            self._seal_trial(number)
            db.execute(
                f"INSERT INTO attempt ({ATTEMPT}, checksum) VALUES (?, ?, ?, {NOW}, NULL, NULL, NULL, NULL, '')",
                (number, claim.attempt, owner),
            )
            self._seal_attempt(number, claim.attempt)
            return claim

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        """Makes the lease end ``lease_seconds`` from now; False when the claim no longer holds."""
        with writing(self._connection, self.path) as db:
            if not self._holds(claim):
                return False
            db.execute(f"UPDATE trial SET lease_until = {NOW} + ? WHERE number = ?", (lease_seconds, claim.number))
            self._seal_trial(claim.number)
            return True

    def finish(self, claim: Claim, outcome: Outcome, measurement_json: str) -> bool:
        """Records how the claimed attempt ended; once this returns True the result is on the disk for good.

        Outcomes that say nothing about the plan queue the trial again while it has attempts left. False when the claim no longer
        holds: the measurement is then kept as late evidence and changes nothing. Finishing twice alike is finishing once.
        """
        json.loads(measurement_json)
        with writing(self._connection, self.path):
            if not self._holds(claim):
                return self._keep_late(claim, outcome, measurement_json)
            self._close_attempt(claim.number, claim.attempt, outcome, measurement_json)
            again = outcome in RETRIED and self._failures(claim.number) < MAX_ATTEMPTS
            self._let_go(claim.number, State.QUEUED if again else State.FINISHED)
            return True

    def release(self, claim: Claim) -> bool:
        """Gives the trial back unrun: it is queued again and the attempt does not count; False when the claim no longer holds."""
        with writing(self._connection, self.path):
            if not self._holds(claim):
                return False
            self._close_attempt(claim.number, claim.attempt, Outcome.CANCELLED, None)
            self._let_go(claim.number, State.QUEUED)
            return True

    def trials(self) -> tuple[TrialRow, ...]:
        """All trials by number, each with its attempts; every row is checked against its seal.

        Raises:
            FileError: a row was damaged or is missing; names it.
        """
        with failures(self.path):
            self._connection.execute("BEGIN")  # both queries see one state
            try:
                rows = self._connection.execute(f"SELECT {TRIAL}, checksum FROM trial ORDER BY number").fetchall()
                attempts = self._attempts()
            finally:
                self._connection.execute("COMMIT")
        by_trial: dict[int, list[AttemptRow]] = {}
        for attempt in attempts:
            by_trial.setdefault(attempt.trial, []).append(attempt)
        return tuple(self._trial_row(row, number, by_trial.get(number, [])) for number, row in enumerate(rows, start=1))

    def counts(self) -> Counts:
        """Trials by state and outcome."""
        trials = self.trials()
        states = [trial.state for trial in trials]
        ends = [trial.outcome for trial in trials]
        return Counts(
            queued=states.count(State.QUEUED),
            running=states.count(State.RUNNING),
            finished=states.count(State.FINISHED),
            outcomes={outcome: ends.count(outcome) for outcome in Outcome if outcome in ends},
        )

    def export_jsonl(self, path: str | Path) -> None:
        """Writes the finished trials as a history: a line ``{version, plan, measurement, trial, proposed_by}`` for each that has
        a measurement.

        Raises:
            FileError: the place cannot be written.
        """
        _write_lines(path, [line for trial in self.trials() if (line := as_history(trial)) is not None])

    def _holds(self, claim: Claim) -> bool:
        row = self._connection.execute(f"SELECT {TRIAL}, checksum FROM trial WHERE number = ?", (claim.number,)).fetchone()
        if row is None:
            return False
        _, _, _, _, state, attempt, _, _ = self._sound(row, f"trial {claim.number}")
        return bool(state == State.RUNNING and attempt == claim.attempt)

    def _give_up_expired(self) -> None:
        """Finishes as lost what ran out of its lease and of its attempts."""
        query = f"SELECT {TRIAL}, checksum FROM trial WHERE state = 'running' AND lease_until < {NOW}"
        for row in self._connection.execute(query).fetchall():
            number, _, _, _, _, attempt, _, _ = self._sound(row, f"trial {row[0]}")
            if self._failures(number) + 1 >= MAX_ATTEMPTS:
                self._close_attempt(number, attempt, Outcome.LOST, None)
                self._let_go(number, State.FINISHED)

    def _failures(self, number: int) -> int:
        return sum(attempt.outcome in RETRIED for attempt in self._attempts(number))

    def _attempts(self, number: int | None = None) -> list[AttemptRow]:
        """The attempts of one trial, or of all, each checked against its seal."""
        which = "" if number is None else f"WHERE trial = {number:d}"
        rows = self._connection.execute(f"SELECT {ATTEMPT}, checksum FROM attempt {which} ORDER BY trial, attempt").fetchall()
        return [self._attempt_row(self._sound(row, f"trial {row[0]} attempt {row[1]}")) for row in rows]

    def _let_go(self, number: int, state: State) -> None:
        self._connection.execute("UPDATE trial SET state = ?, owner = NULL, lease_until = NULL WHERE number = ?", (state, number))
        self._seal_trial(number)

    def _close_attempt(self, number: int, attempt: int, outcome: Outcome, measurement_json: str | None) -> None:
        self._connection.execute(
            f"UPDATE attempt SET ended = {NOW}, outcome = ?, measurement = ? WHERE trial = ? AND attempt = ?",
            (outcome, measurement_json, number, attempt),
        )
        self._seal_attempt(number, attempt)

    def _keep_late(self, claim: Claim, outcome: Outcome, measurement_json: str) -> bool:
        """Keeps the first late measurement of an attempt; True when it only repeats what the attempt was closed with."""
        for attempt in self._attempts(claim.number):
            if attempt.attempt == claim.attempt:
                if (attempt.outcome, attempt.measurement_json) == (outcome, measurement_json):
                    return True
                if attempt.late_json is None:
                    self._connection.execute(
                        "UPDATE attempt SET late = ? WHERE trial = ? AND attempt = ?",
                        (measurement_json, claim.number, claim.attempt),
                    )
                    self._seal_attempt(claim.number, claim.attempt)
        return False

    def _seal_trial(self, number: int) -> None:
        self._connection.execute(f"UPDATE trial SET checksum = seal({TRIAL}) WHERE number = ?", (number,))

    def _seal_attempt(self, number: int, attempt: int) -> None:
        self._connection.execute(
            f"UPDATE attempt SET checksum = seal({ATTEMPT}) WHERE trial = ? AND attempt = ?", (number, attempt)
        )

    def _sound(self, row: tuple[Any, ...], name: str) -> tuple[Any, ...]:
        """The row without its checksum, once that is right."""
        *columns, checksum = row
        if seal(*columns) != checksum:
            raise FileError(self.path, f"{name}: does not match its checksum, so the row was damaged or changed by hand")
        return tuple(columns)

    def _trial_row(self, row: tuple[Any, ...], number: int, attempts: list[AttemptRow]) -> TrialRow:
        if row[0] != number:
            raise FileError(self.path, f"trial {number}: the row is missing")
        _, key, plan, proposed_by, state, attempt, owner, lease_until = self._sound(row, f"trial {number}")
        if [item.attempt for item in attempts] != list(range(1, attempt + 1)):
            raise FileError(self.path, f"trial {number}: the row of an attempt is missing")
        return TrialRow(
            number=number, key=key, plan_json=plan, proposed_by=proposed_by, state=State(state), attempt=attempt,
            owner=owner, lease_until=lease_until, attempts=tuple(attempts),
        )  # fmt: skip

    def _attempt_row(self, row: tuple[Any, ...]) -> AttemptRow:
        trial, attempt, owner, started, ended, outcome, measurement, late = row
        return AttemptRow(
            trial=trial, attempt=attempt, owner=owner, started=started, ended=ended,
            outcome=None if outcome is None else Outcome(outcome), measurement_json=measurement, late_json=late,
        )  # fmt: skip


def _write_lines(path: str | Path, records: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    target = Path(path)
    draft = target.with_name(target.name + ".draft")
    try:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")  # a lone surrogate becomes its JSON escape
        draft.replace(target)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
