"""SQLite database of a ledger: opening, transactions, and errors as one line that names the file.

On a local disk, SQLite commits survive crashes and power loss (sqlite.org/atomiccommit.html). Network file systems break the
locks that this depends on (sqlite.org/wal.html, "all processes must be on the same host"), so they are rejected.
"""

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from strategist.errors import FileError, InputError
from strategist.ledger import schema
from strategist.ledger.database import Row, T

FILE_NAME = "study.sqlite"
BUSY_SECONDS = 60.0
REPAIR_ADVICE = "strategist study repair makes a new study of what is whole"
NETWORK_FILESYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph", "9p", "afs")

NOW = "SELECT (julianday('now') - 2440587.5) * 86400.0"
"""Seconds since 1970 with millisecond resolution, as by ``unixepoch('subsec')``, which SQLite has only since 3.42."""

_ROW_LOCKS = re.compile(" FOR UPDATE( SKIP LOCKED)?")


class SqliteTransaction:
    """Access to the database within one transaction. A writer locks the whole file, so rows need no locks."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @cached_property
    def now(self) -> float:
        return float(self.rows(NOW)[0][0])

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        return self._connection.execute(_ROW_LOCKS.sub("", statement), values).fetchall()

    def run(self, statement: str, values: Sequence[object] = ()) -> None:
        self.rows(statement, values)


class SqliteDatabase:
    """One connection to the file; belongs to the thread that opened it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, folder: Path, create: bool) -> "SqliteDatabase":
        """The database in ``folder``, its schema upgraded.

        Raises:
            InputError: the folder is on a network file system.
            FileError: there is no such file, or it is not SQLite, damaged, or written by a newer strategist.
        """
        path = folder / FILE_NAME
        if (kind := filesystem(folder)) in NETWORK_FILESYSTEMS:
            law, do = f"lies on a network file system ({kind})", "choose a folder on a local disk, or keep the ledger on a server"
            raise InputError(f"study {folder}", law, f"{do} with --ledger postgresql://USER@HOST/DATABASE")
        if not create and not path.is_file():
            raise FileError(
                path,
                "does not exist: there is no study in this folder; strategist study list names those below here",
            )
        with converted_errors(path):
            uri = f"{path.as_uri()}?mode={'rwc' if create else 'rw'}"
            connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            database = cls(path, connection)
            try:
                database._prepare(create)
            except BaseException:
                connection.close()
                raise
        return database

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self, work: Callable[[SqliteTransaction], T]) -> T:
        return self._transact("BEGIN", work)

    def write(self, work: Callable[[SqliteTransaction], T]) -> T:
        return self._transact("BEGIN IMMEDIATE", work)  # locks from the start: what it reads cannot change

    def close(self) -> None:
        self._connection.close()

    def _transact(self, begin: str, work: Callable[[SqliteTransaction], T]) -> T:
        with converted_errors(self.path):
            self._connection.execute(begin)
            try:
                result = work(SqliteTransaction(self._connection))
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return result

    def _prepare(self, create: bool) -> None:
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA cell_size_check = ON")
        self._use_write_ahead_log()
        if (version := self._version()) == 0 and not create:
            raise FileError(self.path, "is not a study of strategist; name another folder")
        if version < schema.SCHEMA:
            self.write(lambda transaction: schema.upgrade(transaction, self._version()))
        damage = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            raise FileError(self.path, f"is damaged: {' '.join(damage.split())}; {REPAIR_ADVICE}")

    def _version(self) -> int:
        tables = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        has_version = "schema_version" in tables
        rows = self._connection.execute("SELECT version FROM schema_version").fetchall() if has_version else []
        return schema.version_of(tables, rows, self.name)

    def _use_write_ahead_log(self) -> None:
        """Turns the write-ahead log on, with retries: it needs an exclusive lock, for which SQLite does not wait by itself."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


@contextmanager
def converted_errors(path: Path) -> Iterator[None]:
    """Converts errors of SQLite into a FileError that names the file."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # a bug in our own code, such as a use after close; the file is not at fault
    except UnicodeDecodeError:  # from an error message that quotes undecodable bytes
        raise FileError(path, "is damaged: a name in it is not text; restore it from a copy") from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            message = f"has been locked by another process for {BUSY_SECONDS:.0f} s: end that process, or try again later"
        elif code == sqlite3.SQLITE_FULL:
            message = "cannot grow: the disk is full; free some space and start again, nothing finished is lost"
        elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            message = f"cannot be written: {error}"
        elif code == sqlite3.SQLITE_IOERR:
            message = f"cannot be read or written: {error}"
        else:
            message = f"is damaged or not a study of strategist: {error}; {REPAIR_ADVICE}"
        raise FileError(path, message) from None


def filesystem(folder: Path) -> str:
    """The type of the file system that ``folder`` is on, such as ``ext4``; empty if unknown."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    mount_point, kind = "", ""
    path = os.path.realpath(folder)
    for escaped, mount_type in (line.split()[1:3] for line in mounts):
        mount = escaped.replace("\\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(mount_point):
            mount_point, kind = mount, mount_type
    return kind
