"""The SQLite file under a ledger: opening, schema, transactions, and every failure as one line that names the file.

SQLite commits through crash and power loss (sqlite.org/atomiccommit.html) on a local disk; network file systems break the locks
that this rests on (sqlite.org/wal.html, "all processes must be on the same host"), so they are refused.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strategist.errors import FileError, InputError
from strategist.ledger.rows import seal

BUSY_SECONDS = 60.0
NETWORK_FILESYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph", "9p", "afs")

NOW = "((julianday('now') - 2440587.5) * 86400.0)"
"""Seconds since 1970 to the millisecond. The same clock as ``unixepoch('subsec')``, which SQLite has only from 3.42 on."""

MIGRATIONS = (
    """
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (1);
    CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL);
    CREATE TABLE trial (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, plan TEXT NOT NULL, proposed_by TEXT NOT NULL,
        state TEXT NOT NULL, attempt INTEGER NOT NULL, owner TEXT, lease_until REAL, checksum TEXT NOT NULL);
    CREATE INDEX trial_by_state ON trial (state, number);
    CREATE TABLE attempt (
        trial INTEGER NOT NULL REFERENCES trial (number), attempt INTEGER NOT NULL, owner TEXT NOT NULL, started REAL NOT NULL,
        ended REAL, outcome TEXT, measurement TEXT, late TEXT, checksum TEXT NOT NULL, PRIMARY KEY (trial, attempt));
    """,
)
"""Script i brings a file from schema i to i + 1; a new file starts at 0, so creating and upgrading are one path.

A released script is never edited: a change of the format is one more script at the end.
"""

SCHEMA = len(MIGRATIONS)


def connect(path: Path, create: bool) -> sqlite3.Connection:
    """A connection to the file, its schema brought up to date.

    Raises:
        InputError: the file lies on a network.
        FileError: no such file, no SQLite file, damaged, or written by a newer strategist.
    """
    if (kind := filesystem(path.parent)) in NETWORK_FILESYSTEMS:
        raise InputError(f"study {path.parent}", f"lies on a network file system ({kind})", "choose a folder on a local disk")
    if not create and not path.is_file():
        raise FileError(path, "does not exist: there is no study in this folder")
    with failures(path):
        uri = f"{path.as_uri()}?mode={'rwc' if create else 'rw'}"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            _prepare(connection, path, create)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, create: bool) -> None:
    connection.create_function("seal", -1, seal, deterministic=True)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    _use_write_ahead_log(connection)
    if (version := _version(connection, path)) == 0 and not create:
        raise FileError(path, "is no study of strategist's")
    if version < SCHEMA:
        with writing(connection, path):
            for script in MIGRATIONS[_version(connection, path) :]:
                for statement in filter(str.strip, script.split(";")):
                    connection.execute(statement)
            connection.execute("UPDATE schema_version SET version = ?", (SCHEMA,))
    damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        raise FileError(path, f"is damaged: {' '.join(damage.split())}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema of the file, 0 when it is empty."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise FileError(path, "is no study of strategist's")
    rows = connection.execute("SELECT version FROM schema_version").fetchall()
    version = rows[0][0] if len(rows) == 1 else None
    if not isinstance(version, int) or version < 1:
        raise FileError(path, "is damaged: its schema version cannot be read")
    if version > SCHEMA:
        raise FileError(path, f"has schema {version}, newer than {SCHEMA}, the newest that this strategist reads: upgrade it")
    return version


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Turning the log on needs the file alone, and SQLite does not wait for that by itself: two may create one study at once."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def writing(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """One transaction that holds the write lock from its start, so that what it reads cannot change under it."""
    with failures(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Every error of SQLite as a FileError that names the file."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # a slip in our own code, such as a use after close, says nothing about the file
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
            message = f"is damaged or no study of strategist's: {error}"
        raise FileError(path, message) from None


def filesystem(folder: Path) -> str:
    """The type of the file system that ``folder`` lies on, e.g. ``ext4``; empty where the system does not say."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    place = os.path.realpath(folder)
    for point, name in (line.split()[1:3] for line in mounts):
        mount = point.replace("\\040", " ")
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, name
    return kind
