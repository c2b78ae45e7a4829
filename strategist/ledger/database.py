"""Database interface of a ledger: SQLite and PostgreSQL run the same statements.

Statements are PostgreSQL's, with ``?`` for values. ``FOR UPDATE`` locks the rows that were read until the transaction ends;
``FOR UPDATE SKIP LOCKED`` skips rows that other transactions have locked. SQLite locks the whole file instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


class Transaction(Protocol):
    """Access to the database within one transaction. ``now``: the database's clock, in seconds since 1970, constant meanwhile."""

    @property
    def now(self) -> float: ...

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Runs a statement and returns its rows."""
        ...

    def run(self, statement: str, values: Sequence[object] = ()) -> None:
        """Runs a statement without a result."""
        ...


class Database(Protocol):
    """One connection. ``name``: the database in error messages, without a password."""

    @property
    def name(self) -> str: ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """The result of ``work``; all its queries see the same state."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """The result of ``work``, after its writes are durable on disk. ``work`` may be called again after a rollback."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...
