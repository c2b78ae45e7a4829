"""Recovers a damaged SQLite ledger: every row with a correct checksum.

Rows are looked up one by one in a copy of the file, and read from its pages if SQLite does not find them.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from strategist.contract.study import TrialState
from strategist.errors import FileError
from strategist.frozen import frozen
from strategist.ledger.database import Row
from strategist.ledger.ledger import ATTEMPT, MAX_TRIALS, TRIAL
from strategist.ledger.rows import AttemptRow, TrialRow, row_checksum
from strategist.ledger.sqlite import FILE_NAME
from strategist.ledger.sqlite_pages import pages, records

FILE_SUFFIXES = ("", "-wal", "-shm")
"""Suffixes of the database file and of SQLite's files beside it, which may be the only ones with the latest commits."""


@frozen
class Recovered:
    """Recovered rows, unchanged: ``facts`` of the study by key, ``trials`` by number without their attempts, and ``attempts``."""

    facts: dict[str, str]
    trials: dict[int, TrialRow]
    attempts: tuple[AttemptRow, ...]


def recover(folder: Path) -> Recovered:
    """The readable rows of the ledger in a folder, which stays unchanged.

    Raises:
        FileError: there is no ledger, or no row can be read.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        law = "does not exist: there is no study in this folder"
        raise FileError(path, f"{law}; strategist study list names those below here")
    data, log = (file.read_bytes() if (file := folder / f"{FILE_NAME}{suffix}").is_file() else b"" for suffix in FILE_SUFFIXES[:2])
    rows = [(number, columns) for number, columns in records(pages(data, log)) if columns and 0 < number <= MAX_TRIALS]
    facts, trials, attempts = _rows_from_pages(rows)
    numbers = sorted({number for number, _ in rows})
    with tempfile.TemporaryDirectory(prefix="strategist-recovery-") as copy_folder:
        for suffix in FILE_SUFFIXES:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", Path(copy_folder, FILE_NAME + suffix))
        with closing(sqlite3.connect(Path(copy_folder, FILE_NAME), isolation_level=None)) as connection:
            connection.text_factory = bytes
            facts |= {str(key): str(value) for key, value in _valid_rows(connection, "study", "key, value", numbers)}
            trials |= {row.number: row for row in map(TrialRow.of, _valid_rows(connection, "trial", TRIAL, numbers))}
            rows_of_attempts = map(AttemptRow.of, _valid_rows(connection, "attempt", ATTEMPT, numbers))
            attempts |= {(row.trial, row.attempt): row for row in rows_of_attempts}
    recovered = Recovered(facts=facts, trials=trials, attempts=tuple(attempts.values()))
    if not recovered.facts and not recovered.trials:
        raise FileError(path, "is damaged beyond repair: no row of it can be read; restore it from a copy")
    return recovered


def _rows_from_pages(
    rows: Iterable[tuple[int, list[object]]],
) -> tuple[dict[str, str], dict[int, TrialRow], dict[tuple[int, int], AttemptRow]]:
    """The latest valid version of each row. Free pages may hold older ones, so rows that SQLite finds take precedence."""
    facts, trials, attempts = dict[str, str](), dict[int, TrialRow](), dict[tuple[int, int], AttemptRow]()
    for number, (*columns, checksum) in rows:
        if len(columns) == len(TRIAL.split(",")) and columns[0] is None:  # SQLite stores the number outside of the columns
            columns = [number, *columns[1:-1], _float(columns[-1])]
            if row_checksum(*columns) == checksum:
                trial = TrialRow.of(tuple(columns))
                trials[number] = max(trials.get(number, trial), trial, key=_progress)
        elif len(columns) == len(ATTEMPT.split(",")):
            columns[3:5] = map(_float, columns[3:5])
            if row_checksum(*columns) == checksum:
                attempt = AttemptRow.of(tuple(columns))
                key = attempt.trial, attempt.attempt
                attempts[key] = max(attempts.get(key, attempt), attempt, key=_completeness)
        elif len(columns) == 2 and row_checksum(*columns) == checksum:
            facts[str(columns[0])] = str(columns[1])
    return facts, trials, attempts


def _progress(trial: TrialRow) -> tuple[int, bool, float]:
    return trial.attempt, trial.state is not TrialState.RUNNING, trial.lease_until or 0.0


def _completeness(attempt: AttemptRow) -> tuple[bool, bool]:
    return attempt.ended is not None, attempt.late_json is not None


def _float(value: object) -> object:
    """The value as a float; SQLite stores a whole number as an integer, whatever the column's type."""
    return float(value) if isinstance(value, int) else value


def _valid_rows(connection: sqlite3.Connection, table: str, columns: str, numbers: Iterable[int]) -> Iterator[Row]:
    """Rows of a table with these numbers and a correct checksum, without the checksum."""
    for number in numbers:
        row = _row(connection, f"SELECT {columns}, checksum FROM {table} WHERE rowid = ?", number)
        if row is not None:
            yield row


def _row(connection: sqlite3.Connection, statement: str, number: int) -> Row | None:
    """The row of that number; None if it is missing or damaged."""
    try:
        rows = connection.execute(statement, (number,)).fetchall()
        *columns, checksum = _texts(rows[0]) if rows else [None]
    except (sqlite3.Error, UnicodeDecodeError):
        return None
    return tuple(columns) if columns and row_checksum(*columns) == checksum else None


def _texts(row: Sequence[object]) -> list[object]:
    """The row with texts decoded here, so that invalid text raises UnicodeDecodeError rather than an error of SQLite."""
    return [value.decode() if isinstance(value, bytes) else value for value in row]
