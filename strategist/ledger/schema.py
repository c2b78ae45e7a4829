"""Tables of a ledger, and migrations from older schemas."""

from collections.abc import Sequence

from strategist.errors import FileError
from strategist.ledger.database import Row, Transaction

MIGRATIONS = (
    """
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (1);
    CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL);
    CREATE TABLE trial (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, plan TEXT NOT NULL, proposed_by TEXT NOT NULL,
        state TEXT NOT NULL, attempt INTEGER NOT NULL, owner TEXT, lease_until DOUBLE PRECISION, checksum TEXT NOT NULL);
    CREATE INDEX trial_by_state ON trial (state, number);
    CREATE TABLE attempt (
        trial INTEGER NOT NULL REFERENCES trial (number), attempt INTEGER NOT NULL, owner TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, outcome TEXT, measurement TEXT, late TEXT,
        checksum TEXT NOT NULL, PRIMARY KEY (trial, attempt));
    """,
    """
    CREATE INDEX trial_seals ON trial (number, checksum);
    CREATE INDEX attempt_seals ON attempt (trial, attempt, checksum);
    """,
)
"""Script i upgrades a database from schema i to i + 1. A new database starts at 0, so creation and upgrade are the same.

A released script is never edited: a change of the format is one more script at the end.
"""

SCHEMA = len(MIGRATIONS)


def version_of(tables: Sequence[str], rows: Sequence[Row], database_name: str) -> int:
    """The schema version of a database with these tables and rows of ``schema_version``; 0 without tables.

    Raises:
        FileError: it is not a study's, is damaged, or was written by a newer strategist.
    """
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise FileError(database_name, "is not a study of strategist; name another folder")
    version = rows[0][0] if len(rows) == 1 else None
    if not isinstance(version, int) or version < 1:
        raise FileError(database_name, "is damaged: its schema version cannot be read; restore it from a copy")
    if version > SCHEMA:
        raise FileError(
            database_name, f"has schema {version}, newer than {SCHEMA}, the newest that this strategist reads: upgrade it"
        )
    return version


def upgrade(transaction: Transaction, version: int) -> None:
    """Upgrades a database from that schema to the newest."""
    for script in MIGRATIONS[version:]:
        for statement in filter(str.strip, script.split(";")):
            transaction.run(statement)
    transaction.run("UPDATE schema_version SET version = ?", (SCHEMA,))
