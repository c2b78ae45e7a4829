"""What a damaged SQLite ledger still holds: each row that its seal vouches for, looked up one by one in a copy of the file."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from strategist.errors import FileError
from strategist.ledger.database import Row
from strategist.ledger.ledger import ATTEMPT, TRIAL
from strategist.ledger.rows import AttemptRow, TrialRow, seal
from strategist.ledger.sqlite import FILE_NAME

BESIDE = ("", "-wal", "-shm")
"""The file, and what SQLite keeps beside it: the latest commits may be there only."""
GAP = 10_000
"""Row numbers have no gaps; a damaged page hides neighbours, and after so many there is nothing."""


@dataclass(frozen=True, kw_only=True)
class Salvaged:
    """``facts`` of the study by key, ``trials`` by number without their attempts, and ``attempts``, as they were written."""

    facts: dict[str, str]
    trials: dict[int, TrialRow]
    attempts: tuple[AttemptRow, ...]


def salvage(folder: Path) -> Salvaged:
    """What can be read of the ledger in a folder, which is left as it is.

    Raises:
        FileError: there is none, or nothing of it can be read.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise FileError(path, "does not exist: there is no study in this folder")
    with tempfile.TemporaryDirectory(prefix="strategist-salvage-") as place:
        for name in BESIDE:
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{name}", Path(place, FILE_NAME + name))
        with closing(sqlite3.connect(Path(place, FILE_NAME), isolation_level=None)) as connection:
            connection.text_factory = bytes
            found = Salvaged(
                facts={str(key): str(value) for key, value in _sound(connection, "study", "key, value")},
                trials={row.number: row for row in map(TrialRow.of, _sound(connection, "trial", TRIAL))},
                attempts=tuple(map(AttemptRow.of, _sound(connection, "attempt", ATTEMPT))),
            )
    if not found.facts and not found.trials:
        raise FileError(path, "is damaged beyond repair: no row of it can be read")
    return found


def _sound(connection: sqlite3.Connection, table: str, columns: str) -> Iterator[Row]:
    """The rows of a table that are as they were written, without their seals."""
    missing, number = 0, 0
    while missing < GAP:
        number += 1
        row = _row(connection, f"SELECT {columns}, checksum FROM {table} WHERE rowid = ?", number)
        if row is None:
            missing += 1
        else:
            missing = 0
            yield row


def _row(connection: sqlite3.Connection, statement: str, number: int) -> Row | None:
    """The row of that number where it is there and sound."""
    try:
        rows = connection.execute(statement, (number,)).fetchall()
        *columns, mark = _texts(rows[0]) if rows else [None]
    except (sqlite3.Error, UnicodeDecodeError):
        return None
    return tuple(columns) if columns and seal(*columns) == mark else None


def _texts(row: Sequence[object]) -> list[object]:
    """SQLite quotes what is no text in an error of its own; here it is one of ours."""
    return [value.decode() if isinstance(value, bytes) else value for value in row]
