"""PostgreSQL database of a ledger: each study is a schema of its own, so the statements are the same as for SQLite.

A broken connection is re-established for some time, and its transaction runs again. If the answer to a commit is lost, a row
that each transaction writes shows whether it was committed. The server's transaction number cannot show it: a server that was
killed may use the number again.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import psycopg
from psycopg import Connection

from strategist.errors import FileError
from strategist.ledger import schema
from strategist.ledger.address import Address
from strategist.ledger.database import Row, T

RECONNECT_SECONDS = 60.0
"""Time for which a tuner tries to reach a server before it gives up."""

BUSY_SECONDS = 60
IDLE_SECONDS = 30
"""Time after which the server rolls back an idle transaction, which would keep its rows locked."""

PREFIX = "strategist_"
"""Prefix of schemas that hold a study."""

TEMPORARY_MESSAGES = ("starting up", "shutting down", "recovery", "too many clients", "connection slots")
"""Words in messages of a server that rejects connections temporarily."""

NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

CREATE_WRITTEN = "CREATE TABLE IF NOT EXISTS written (connection TEXT PRIMARY KEY, number BIGINT NOT NULL)"
"""Table with the number of each connection's last committed write."""

RECORD_WRITE = (
    "INSERT INTO written (connection, number) VALUES (?, ?) ON CONFLICT (connection) DO UPDATE SET number = excluded.number "
    "RETURNING extract(epoch FROM clock_timestamp())::float8"
)
AWAIT_WRITE = "INSERT INTO written (connection, number) VALUES (?, 0) ON CONFLICT (connection) DO NOTHING"
"""Waits for a write that the server is still processing."""

OPTIONS: dict[str, Any] = {
    "autocommit": True, "connect_timeout": 10, "application_name": "strategist", "client_encoding": "utf8",
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000,
}  # fmt: skip
SETTINGS = (
    f"SET lock_timeout = '{BUSY_SECONDS}s'",
    f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'",
    "SET synchronous_commit = on",
    "SET client_min_messages = warning",
)


class PostgresTransaction:
    """Access to the database within one transaction, with the server's clock."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    @cached_property
    def now(self) -> float:
        return float(self.rows(NOW)[0][0])

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        return self._execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[object] = ()) -> None:
        self._execute(statement, values)

    def _execute(self, statement: str, values: Sequence[object]) -> psycopg.Cursor[Row]:
        return self._connection.execute(statement.replace("?", "%s").encode(), values or None)


class PostgresDatabase:
    """One connection to the server; belongs to the thread that opened it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection: Connection[Row] | None = None
        self._connection_id, self._writes = uuid.uuid4().hex, 0
        self._gave_up = False
        self._closed = False

    @classmethod
    def open(cls, address: Address, create: bool) -> "PostgresDatabase":
        """The study at that address, its schema upgraded.

        Raises:
            FileError: the server cannot be reached or rejects the connection, there is no such study, or a newer strategist
                wrote it.
        """
        database = cls(address)
        with database._converted_errors():
            database._connection = _connect(address)
            database._with_reconnect(
                lambda connection: _transact(connection, "BEGIN", lambda transaction: database._prepare(transaction, create))
            )
        return database

    @property
    def name(self) -> str:
        return str(self.address)

    def read(self, work: Callable[[PostgresTransaction], T]) -> T:
        return self._with_reconnect(lambda connection: _transact(connection, BEGIN_READING, work))

    def write(self, work: Callable[[PostgresTransaction], T]) -> T:
        return self._with_reconnect(lambda connection: self._write(connection, work))

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _prepare(self, transaction: PostgresTransaction, create: bool) -> None:
        """Creates or upgrades the study's tables; a lock by the study's name serializes concurrent creation."""
        schema_name = PREFIX + self.address.study
        query = "SELECT tablename FROM pg_tables WHERE schemaname = ?"
        tables = [table for (table,) in transaction.rows(query, (schema_name,))]
        if not tables and not create:
            raise FileError(self.name, "does not exist: there is no study of this name; name another")
        if not tables:
            transaction.rows("SELECT pg_advisory_xact_lock(hashtext(?))", (schema_name,))
            tables = [table for (table,) in transaction.rows(query, (schema_name,))]
            if not tables:
                transaction.run(f'CREATE SCHEMA IF NOT EXISTS "{schema_name}"')
        rows = transaction.rows("SELECT version FROM schema_version FOR UPDATE") if "schema_version" in tables else []
        if (version := schema.version_of(tables, rows, self.name)) < schema.SCHEMA:
            schema.upgrade(transaction, version)
        if "written" not in tables:
            transaction.run(CREATE_WRITTEN)

    def _write(self, connection: Connection[Row], work: Callable[[PostgresTransaction], T]) -> T:
        self._writes += 1
        connection.execute("BEGIN")
        transaction = PostgresTransaction(connection)
        ((transaction.now,),) = transaction.rows(RECORD_WRITE, (self._connection_id, self._writes))
        result = work(transaction)
        try:
            connection.execute("COMMIT")
        except psycopg.Error:
            _roll_back(connection)
            if not self._committed():
                raise
        return result

    def _with_reconnect(self, work: Callable[[Connection[Row]], T]) -> T:
        """Runs ``work``, again over a new connection if one breaks; an error of ``work`` itself rolls the transaction back."""
        deadline, pause = time.monotonic() + RECONNECT_SECONDS, 0.05
        with self._converted_errors():
            while True:
                try:
                    return self._run_once(work)
                except psycopg.Error as error:
                    if not _is_temporary(error) or self._gave_up or time.monotonic() + pause > deadline:
                        self._gave_up = True
                        raise
                    time.sleep(pause)
                    pause = min(2 * pause, 1.0)

    def _run_once(self, work: Callable[[Connection[Row]], T]) -> T:
        connection = self._open_connection()
        try:
            result = work(connection)
        except BaseException:
            _roll_back(connection)
            raise
        self._gave_up = False
        return result

    def _open_connection(self) -> Connection[Row]:
        if self._closed:
            raise ValueError("the ledger is closed")
        if self._connection is None or self._connection.closed:
            self._connection = _connect(self.address)
        return self._connection

    def _committed(self) -> bool:
        """Whether the last write was committed although its commit was not answered; asks until the server answers."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                transaction = PostgresTransaction(self._open_connection())
                transaction.run(AWAIT_WRITE, (self._connection_id,))
                ((number,),) = transaction.rows(
                    "SELECT number FROM written WHERE connection = ? FOR UPDATE", (self._connection_id,)
                )
                return bool(number == self._writes)
            except psycopg.Error:
                if time.monotonic() > deadline:
                    return False  # repeating a write is harmless: claims expire, stale results are rejected
                time.sleep(0.1)

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Converts errors of the server into a FileError that names the study."""
        try:
            yield
        except psycopg.Error as error:
            raise FileError(self.name, _error_message(error)) from None


def studies(address: Address) -> list[str]:
    """Names of the studies in a database; the address's own study does not matter.

    Raises:
        FileError: the server cannot be reached or rejects the connection.
    """
    database = PostgresDatabase(address)
    database._gave_up = True  # listing studies does not wait for the server
    query = "SELECT schemaname FROM pg_tables WHERE tablename = 'schema_version' AND starts_with(schemaname, ?) ORDER BY schemaname"
    try:
        rows = database.read(lambda transaction: transaction.rows(query, (PREFIX,)))
    finally:
        database.close()
    return [name.removeprefix(PREFIX) for (name,) in rows]


def _connect(address: Address) -> Connection[Row]:
    connection = psycopg.connect(address.server, **OPTIONS)
    for setting in SETTINGS:
        connection.execute(setting.encode())
    connection.execute(f'SET search_path = "{PREFIX}{address.study}"'.encode())
    return connection


def _transact(connection: Connection[Row], begin: str, work: Callable[[PostgresTransaction], T]) -> T:
    connection.execute(begin.encode())
    result = work(PostgresTransaction(connection))
    connection.execute("COMMIT")
    return result


def _roll_back(connection: Connection[Row]) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:  # the connection is broken: the server rolls back
        connection.close()


def _is_temporary(error: psycopg.Error) -> bool:
    """Whether an error may be temporary: the server restarts, or the connection broke. A rejection is permanent."""
    text = str(error)
    if error.sqlstate is None:  # the server was not reached, or rejected the login
        return "FATAL" not in text or any(word in text for word in TEMPORARY_MESSAGES)
    return error.sqlstate.startswith(("08", "40", "57P", "25P03"))


def _error_message(error: psycopg.Error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].removeprefix("connection failed: ") if lines else type(error).__name__
    if error.sqlstate == "55P03":
        return f"has been locked by another process for {BUSY_SECONDS} s: end that process, or try again later"
    if _is_temporary(error):
        return f"cannot be reached: {text}; nothing finished is lost, start again when the server is back"
    if error.sqlstate is None or error.sqlstate.startswith(("28", "3D", "42501", "53")):
        return f"is refused: {text.partition('FATAL: ')[2].strip() or text}"
    return f"is damaged or not a study of strategist: {text}"
