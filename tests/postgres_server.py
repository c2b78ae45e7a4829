"""A real PostgreSQL server for tests: on a Unix socket in a temporary folder, not as root, terminated at the end."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

DURABLE = ("-c", "listen_addresses=", "-c", "max_connections=60")
"""Commits are flushed to the disk; no network port."""

SPEEDS = ("-c", "fsync=off", *DURABLE)
"""Options without fsync, since tests never lose power."""

postgres_full_only = pytest.mark.parametrize("server", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)], indirect=True)
"""Mark of a test that uses PostgreSQL only in ``make test-all``; other tests cover the server in every run."""


def missing() -> str:
    """The reason why no server can be started; empty if one can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install 'torch-strategist[postgres]'"
    if binary("postgres") is None or binary("initdb") is None:
        return "no PostgreSQL server is installed (Debian: apt install postgresql)"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return ""


def binary(name: str) -> str | None:
    """The path of a program, on PATH or in Debian's folder."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


def _account() -> pwd.struct_passwd | None:
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known.get("nobody")


@dataclass(kw_only=True)
class PostgresServer:
    """A running server; ``stop`` and ``start`` are for tests of reconnection."""

    folder: Path
    options: tuple[str, ...] = SPEEDS
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @classmethod
    @contextmanager
    def started(cls, options: tuple[str, ...] = SPEEDS) -> "Iterator[PostgresServer]":
        server = cls(folder=Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp")), options=options)
        try:
            if account := _account() if os.geteuid() == 0 else None:
                os.chown(server.folder, account.pw_uid, account.pw_gid)
            initdb = [binary("initdb"), "-D", server.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
            subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **server._user())
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    @property
    def address(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def study(self) -> str:
        """The address of a new study."""
        return f"{self.address}&study=test-{uuid.uuid4().hex}"

    def start(self) -> None:
        """Starts the server, and returns when it accepts connections."""
        command = [binary("postgres"), "-D", self.data, "-k", str(self.folder), *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **self._user())
        while not self._ready():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Stops the server at once, without notice to clients; SIGKILL kills all of its processes."""
        if self.process is not None and self.runs:
            pid = self.process.pid
            its = list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))  # children have their own sessions
            self.process.send_signal(number)
            for child in its if number is signal.SIGKILL else ():
                with suppress(ProcessLookupError):
                    os.kill(child, number)
            self.process.wait()
            while any(_runs(child) for child in its):  # while a child holds the shared memory, no other server starts
                time.sleep(0.01)

    def _ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.address, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _user(self) -> dict[str, object]:
        account = _account() if os.geteuid() == 0 else None
        return (
            {"cwd": "/"} if account is None else {"cwd": "/", "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        )


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False
