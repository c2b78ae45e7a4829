"""Database interface of a ledger: SQLite and PostgreSQL run the same statements.

Statements are PostgreSQL's, with ``?`` where a value belongs. ``FOR UPDATE`` holds the rows that were read until the transaction
ends, ``FOR UPDATE SKIP LOCKED`` leaves out those that others hold; SQLite holds the whole file instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


class Transaction(Protocol):
    """What the work of one transaction sees. ``now`` is the database's clock at its start: seconds since 1970."""

    @property
    def now(self) -> float: ...

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Runs a statement that has a result."""
        ...

    def run(self, statement: str, values: Sequence[object] = ()) -> None:
        """Runs a statement that has none."""
        ...


class Database(Protocol):
    """One connection. ``place`` is how errors name the database, without a password."""

    @property
    def place(self) -> str: ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """The result of ``work``, all of whose queries see one state."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """The result of ``work``, once all that it wrote is on the disk for good. It may be called again after it was undone."""
        ...

    def close(self) -> None:
        """Gives the database back."""
        ...
