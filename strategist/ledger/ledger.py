"""Ledger: the trials of one study. Any number of processes share it, each with its own Ledger.

A claim gives a trial to a tuner for a time (its lease), under an attempt number. After the lease has expired, the next claim
takes the trial over; a later report of the first tuner is stored with its attempt but changes nothing. So a tuner may die at any
time: acknowledged results stay, and unfinished trials run again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.errors import FileError, InputError
from strategist.files import outputs
from strategist.ledger import address as addresses
from strategist.ledger.address import Address
from strategist.ledger.database import Database, Row, Transaction
from strategist.ledger.rows import MAX_ATTEMPTS, RETRIED_OUTCOMES, AttemptRow, Claim, Counts, TrialRow, history_line, row_checksum
from strategist.ledger.sqlite import SqliteDatabase

TRIAL = "number, key, plan, proposed_by, state, attempt, owner, lease_until"
ATTEMPT = "trial, attempt, owner, started, ended, outcome, measurement, late"
MAX_TRIALS = 2**31 - 1

HISTORY_MARK = '"plan":{'
"""Text near the start of every history."""


class Ledger:
    """One connection to the ledger of a study; belongs to the thread that opened it.

    folder: the study's; None if the study was opened by a server's address.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self.folder = folder
        self._database = database
        self._cached_checksums: list[Row] = []
        self._cached_trials: tuple[TrialRow, ...] = ()

    @classmethod
    def open(cls, study: str | Path, create: bool = False, server: str = "") -> "Ledger":
        """The ledger of the study in a folder, or on a server, as ``postgresql://USER@HOST/DATABASE?study=NAME``.

        Args:
            create: creates a missing folder and ledger: in the folder, or on ``server``.
            server: the folder stores this address; without a study's name in it, the study has the folder's name.

        Raises:
            FileError: there is none, it is damaged, a newer strategist wrote it, or its server cannot be reached.
            InputError: the folder is on a network file system, or its ledger on another server.
        """
        if addresses.is_server(study):
            return cls(_on_server(addresses.parse(str(study), "study"), create=False), None)
        folder = Path(study).resolve()
        if create:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(folder, f"cannot be created: {error.strerror}; name a folder") from None
        address = addresses.resolve(folder, server)
        if address is None:
            return cls(SqliteDatabase.open(folder, create), folder)
        database = _on_server(address, create)
        if server:
            addresses.store(folder, address)
        return cls(database, folder)

    @property
    def name(self) -> str:
        """Name of the ledger in errors."""
        return self._database.name

    def close(self) -> None:
        """Closes the connection."""
        self._database.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def set_fact(self, key: str, text: str) -> None:
        """Writes a fact about the study, once; another write must have the same value.

        Raises:
            InputError: the study already has another value.
        """
        if self.set_default(key, text) != text:
            raise InputError(f"study {self.folder or self.name}: {key}", "was started with another value", "use a new study folder")

    def set_default(self, key: str, text: str) -> str:
        """Writes a fact about the study unless it exists; returns the stored value."""
        statement = "INSERT INTO study (key, value, checksum) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self._database.write(lambda db: db.run(statement, (key, text, row_checksum(key, text))))
        return self.fact(key) or ""

    def fact(self, key: str) -> str | None:
        """A fact about the study; None if it is not set."""
        rows = self._database.read(lambda db: db.rows("SELECT key, value, checksum FROM study WHERE key = ?", (key,)))
        return str(self._verified(rows[0], f"study {key}")[1]) if rows else None

    def facts(self, prefix: str) -> dict[str, str]:
        """Facts whose keys start with ``prefix``, by key."""
        rows = self._database.read(lambda db: db.rows("SELECT key, value, checksum FROM study ORDER BY key"))
        verified = (self._verified(row, f"study {row[0]}") for row in rows if str(row[0]).startswith(prefix))
        return {str(key): str(value) for key, value in verified}

    def now(self) -> float:
        """The database's clock, which decides when leases expire."""
        return self._database.read(lambda db: db.now)

    def enqueue(self, key: str, plan_json: str, proposed_by: str, last: int | None = None) -> int | None:
        """Queues a plan under the digest of its candidate; a known digest keeps its trial. Returns the trial's number.

        last: highest number that a new trial may have; None is returned if the next number is higher, because other tuners
        queued trials meanwhile.
        """
        json.loads(plan_json)

        def work(db: Transaction) -> int | None:
            number, existing = self._find_or_number(db, key)
            if existing is None and last is not None and number > last:
                return None
            return (existing or self._insert_trial(db, number, key, plan_json, proposed_by)).number

        return self._database.write(work)

    def import_trial(self, trial: TrialRow) -> bool:
        """Imports a trial that ran elsewhere, with its attempts, under the next number; False if its candidate was tried already.

        If the candidate is queued here, the import finishes that trial.
        """
        json.loads(trial.plan_json)
        return self._database.write(lambda db: self._import_trial(db, trial))

    def claim(self, owner: str, lease_seconds: float, last: int | None = None) -> Claim | None:
        """Claims the next trial to run: the first queued one, else the first with an expired lease; None without either.

        last: highest number of a trial to claim, so that several tuners keep to one budget.
        """
        return self._database.write(lambda db: self._claim(db, owner, lease_seconds, MAX_TRIALS if last is None else last))

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        """Extends the lease to ``lease_seconds`` from now; False if the claim is no longer valid."""

        def work(db: Transaction) -> bool:
            trial = self._claimed_trial(db, claim)
            if trial is not None:
                self._update_trial(db, replace(trial, lease_until=db.now + lease_seconds))
            return trial is not None

        return self._database.write(work)

    def finish(self, claim: Claim, outcome: Outcome, measurement_json: str) -> bool:
        """Records how the claimed attempt ended; after it returns True, the result is durable on disk.

        Outcomes that show nothing about the plan queue the trial again while it has attempts left. False if the claim is no
        longer valid: the measurement is then stored as late evidence and changes nothing. Repeating a call with equal arguments
        has no effect.
        """
        json.loads(measurement_json)

        def work(db: Transaction) -> bool:
            trial = self._claimed_trial(db, claim)
            if trial is None:
                return self._store_late(db, claim, outcome, measurement_json)
            attempts = self._close_attempt(db, trial, outcome, measurement_json)
            retry = outcome in RETRIED_OUTCOMES and _failed_attempts(attempts) < MAX_ATTEMPTS
            self._end_lease(db, trial, TrialState.QUEUED if retry else TrialState.FINISHED)
            return True

        return self._database.write(work)

    def release(self, claim: Claim) -> bool:
        """Returns the trial to the queue without a run; the attempt does not count. False if the claim is no longer valid."""

        def work(db: Transaction) -> bool:
            trial = self._claimed_trial(db, claim)
            if trial is not None:
                self._close_attempt(db, trial, Outcome.CANCELLED, None)
                self._end_lease(db, trial, TrialState.QUEUED)
            return trial is not None

        return self._database.write(work)

    def trials(self) -> tuple[TrialRow, ...]:
        """All trials by number, each with its attempts; every row is checked against its checksum when it is read.

        Rows up to the first changed checksum are not read again, so frequent calls cost only what changed, mostly at the end.

        Raises:
            FileError: a row is damaged or missing; names it.
        """
        self._cached_checksums, self._cached_trials = self._database.read(self._read_changed)
        return self._cached_trials

    def _read_changed(self, db: Transaction) -> tuple[list[Row], tuple[TrialRow, ...]]:
        """The checksums of all trials and their attempts; and all trials, read again from the first changed checksum on."""
        checksums: list[Row] = [
            (number, checksum) for number, checksum in db.rows("SELECT number, checksum FROM trial ORDER BY number")
        ]
        for trial, checksum in db.rows("SELECT trial, checksum FROM attempt ORDER BY trial, attempt"):
            if trial <= len(checksums):
                checksums[trial - 1] += (checksum,)
        pairs = enumerate(zip(checksums, self._cached_checksums, strict=False))
        unchanged = next((index for index, (one, other) in pairs if one != other), min(len(checksums), len(self._cached_checksums)))
        if unchanged == len(checksums):
            return checksums, self._cached_trials[:unchanged]
        rows = db.rows(f"SELECT {TRIAL}, checksum FROM trial WHERE number > ? ORDER BY number", (unchanged,))
        by_trial: dict[int, list[AttemptRow]] = {}
        for attempt in self._attempts(db, "trial > ?", unchanged):
            by_trial.setdefault(attempt.trial, []).append(attempt)
        changed = [
            self._complete_trial(row, number, by_trial.get(number, [])) for number, row in enumerate(rows, start=unchanged + 1)
        ]
        return checksums, (*self._cached_trials[:unchanged], *changed)

    def counts(self) -> Counts:
        """Trials by state and outcome."""
        trials = self.trials()
        states = [trial.state for trial in trials]
        outcomes = [trial.outcome for trial in trials]
        return Counts(
            queued=states.count(TrialState.QUEUED),
            running=states.count(TrialState.RUNNING),
            finished=states.count(TrialState.FINISHED),
            outcomes={outcome: outcomes.count(outcome) for outcome in Outcome if outcome in outcomes},
        )

    def export_jsonl(self, path: str | Path, *, force: bool = True) -> None:
        """Writes the finished trials that have a measurement as a history; without ``force``, only a history is overwritten.

        A line is ``{version, plan, measurement, trial, proposed_by}``.

        Raises:
            FileError: the file cannot be written, or another kind of file exists there.
        """
        records = (line for trial in self.trials() if (line := history_line(trial)) is not None)
        lines = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
        outputs.write(path, "".join(lines), marker=HISTORY_MARK, force=force)

    def _find_or_number(self, db: Transaction, key: str) -> tuple[int, TrialRow | None]:
        """The trial with that key and its number, or None and the next number. A lock serializes callers: numbers have no gaps."""
        db.rows("SELECT version FROM schema_version FOR UPDATE")
        if existing := self._trials(db, "key = ?", (key,)):
            return existing[0].number, existing[0]
        (number,) = db.rows("SELECT coalesce(max(number), 0) + 1 FROM trial")[0]
        return number, None

    def _insert_trial(self, db: Transaction, number: int, key: str, plan_json: str, proposed_by: str) -> TrialRow:
        trial = TrialRow(number=number, key=key, plan_json=plan_json, proposed_by=proposed_by, state=TrialState.QUEUED)
        columns = trial.columns
        db.run(f"INSERT INTO trial ({TRIAL}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*columns, row_checksum(*columns)))
        return trial

    def _import_trial(self, db: Transaction, trial: TrialRow) -> bool:
        number, existing = self._find_or_number(db, trial.key)
        if existing and (existing.state is not TrialState.QUEUED or not trial.attempts):
            return False
        row = existing or self._insert_trial(db, number, trial.key, trial.plan_json, trial.proposed_by)
        for attempt_number, attempt in enumerate(trial.attempts, start=row.attempt + 1):
            self._insert_attempt(db, replace(attempt, trial=row.number, attempt=attempt_number))
        state = trial.state if trial.attempts else TrialState.QUEUED
        self._update_trial(db, replace(row, state=state, attempt=row.attempt + len(trial.attempts)))
        return True

    def _claim(self, db: Transaction, owner: str, lease_seconds: float, last: int) -> Claim | None:
        expired = self._retryable_expired(db)
        queued = self._trials(db, "state = 'queued' AND number <= ? ORDER BY number LIMIT 1", (last,), "SKIP LOCKED")
        trial = next((item for item in (*queued, *expired) if item.number <= last), None)
        if trial is None:
            return None
        if trial.state is TrialState.RUNNING:
            self._close_attempt(db, trial, Outcome.LOST, None)
        claimed = replace(
            trial, state=TrialState.RUNNING, attempt=trial.attempt + 1, owner=owner, lease_until=db.now + lease_seconds
        )
        self._update_trial(db, claimed)
        self._insert_attempt(db, AttemptRow(trial=trial.number, attempt=claimed.attempt, owner=owner, started=db.now))
        return Claim(number=trial.number, attempt=claimed.attempt, plan_json=trial.plan_json, proposed_by=trial.proposed_by)

    def _retryable_expired(self, db: Transaction) -> list[TrialRow]:
        """Finishes expired trials without attempts left as lost; returns the expired trials with attempts left, by number."""
        retryable = []
        for trial in self._trials(db, "state = 'running' AND lease_until < ? ORDER BY number", (db.now,), "SKIP LOCKED"):
            if _failed_attempts(self._attempts(db, "trial = ?", trial.number)) + 1 >= MAX_ATTEMPTS:
                self._close_attempt(db, trial, Outcome.LOST, None)
                self._end_lease(db, trial, TrialState.FINISHED)
            else:
                retryable.append(trial)
        return retryable

    def _claimed_trial(self, db: Transaction, claim: Claim) -> TrialRow | None:
        """The trial of the claim, its row locked; None if the claim is no longer valid."""
        trials = self._trials(db, "number = ?", (claim.number,))
        is_valid = trials and trials[0].state is TrialState.RUNNING and trials[0].attempt == claim.attempt
        return trials[0] if is_valid else None

    def _trials(self, db: Transaction, condition: str, values: Sequence[object], locking: str = "") -> list[TrialRow]:
        """Trials without their attempts, their rows locked. ``locking``: SKIP LOCKED to skip locked rows, else they are awaited."""
        rows = db.rows(f"SELECT {TRIAL}, checksum FROM trial WHERE {condition} FOR UPDATE {locking}".rstrip(), values)
        return [TrialRow.of(self._verified(row, f"trial {row[0]}")) for row in rows]

    def _attempts(self, db: Transaction, condition: str, number: int) -> list[AttemptRow]:
        """Attempts of some trials, each checked against its checksum."""
        rows = db.rows(f"SELECT {ATTEMPT}, checksum FROM attempt WHERE {condition} ORDER BY trial, attempt", (number,))
        return [AttemptRow.of(self._verified(row, f"trial {row[0]} attempt {row[1]}")) for row in rows]

    def _end_lease(self, db: Transaction, trial: TrialRow, state: TrialState) -> None:
        self._update_trial(db, replace(trial, state=state, owner=None, lease_until=None))

    def _update_trial(self, db: Transaction, trial: TrialRow) -> None:
        columns = trial.columns
        statement = "UPDATE trial SET state = ?, attempt = ?, owner = ?, lease_until = ?, checksum = ? WHERE number = ?"
        db.run(statement, (*columns[4:], row_checksum(*columns), trial.number))

    def _insert_attempt(self, db: Transaction, attempt: AttemptRow) -> None:
        columns = attempt.columns
        db.run(f"INSERT INTO attempt ({ATTEMPT}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*columns, row_checksum(*columns)))

    def _update_attempt(self, db: Transaction, attempt: AttemptRow) -> None:
        columns = attempt.columns
        statement = (
            "UPDATE attempt SET ended = ?, outcome = ?, measurement = ?, late = ?, checksum = ? WHERE trial = ? AND attempt = ?"
        )
        db.run(statement, (*columns[4:], row_checksum(*columns), attempt.trial, attempt.attempt))

    def _close_attempt(self, db: Transaction, trial: TrialRow, outcome: Outcome, measurement_json: str | None) -> list[AttemptRow]:
        """Ends the last attempt of a trial; returns all attempts."""
        *earlier, last = self._attempts(db, "trial = ?", trial.number)
        closed = replace(last, ended=db.now, outcome=outcome, measurement_json=measurement_json)
        self._update_attempt(db, closed)
        return [*earlier, closed]

    def _store_late(self, db: Transaction, claim: Claim, outcome: Outcome, measurement_json: str) -> bool:
        """Stores the first late measurement of an attempt; True if it repeats the attempt's own result."""
        for attempt in self._attempts(db, "trial = ?", claim.number):
            if attempt.attempt == claim.attempt:
                if (attempt.outcome, attempt.measurement_json) == (outcome, measurement_json):
                    return True
                if attempt.late_json is None:
                    self._update_attempt(db, replace(attempt, late_json=measurement_json))
        return False

    def _verified(self, row: Row, name: str) -> Row:
        """The row without its checksum, after checking it."""
        *columns, checksum = row
        if row_checksum(*columns) != checksum:
            raise FileError(
                self.name,
                f"{name}: does not match its checksum, so the row was damaged or changed by hand; see strategist study repair",
            )
        return tuple(columns)

    def _complete_trial(self, row: Row, number: int, attempts: list[AttemptRow]) -> TrialRow:
        """The trial of a row, after checking that neither it nor an attempt is missing."""
        if row[0] != number:
            raise FileError(self.name, f"trial {number}: the row is missing; see strategist study repair")
        trial = TrialRow.of(self._verified(row, f"trial {number}"))
        if [item.attempt for item in attempts] != list(range(1, trial.attempt + 1)):
            raise FileError(self.name, f"trial {number}: the row of an attempt is missing; see strategist study repair")
        return replace(trial, attempts=tuple(attempts))


def studies_on(server: str) -> list[str]:
    """Addresses of the studies in a server's database, by name.

    Raises:
        InputError: the address is invalid, or psycopg is not installed.
        FileError: the server cannot be reached or rejects the connection.
    """
    address = addresses.parse(server, "study", study="any")
    return [str(replace(address, study=name)) for name in _postgres_module(address).studies(address)]


def _on_server(address: Address, create: bool) -> Database:
    opened: Database = _postgres_module(address).PostgresDatabase.open(address, create)
    return opened


def _postgres_module(address: Address) -> ModuleType:
    """The module that imports psycopg, an optional dependency."""
    try:
        from strategist.ledger import postgres
    except ImportError:
        law, do = "needs psycopg, which is not installed", "pip install 'torch-strategist[postgres]'"
        raise InputError(f"ledger {address}", law, do) from None
    return postgres


def _failed_attempts(attempts: Iterable[AttemptRow]) -> int:
    return sum(attempt.outcome in RETRIED_OUTCOMES for attempt in attempts)
