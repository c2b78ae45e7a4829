"""Fixtures of all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from postgres_server import PostgresServer, missing

pytest_plugins = ("chaos", "time_limit")
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")

LOOKS = {"COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
"""Variables that rich reads besides TERM."""


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Restores default signal handlers, which a background job or nohup may have set to ignore, for processes of tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def no_user_configuration() -> None:
    """Removes the user's configuration from the environment, and gives output the same look on any machine."""
    for name in [name for name in os.environ if name.startswith("STRATEGIST_") or name in LOOKS]:
        del os.environ[name]
    os.environ["STRATEGIST_CONFIG"] = ""
    os.environ |= {"LC_ALL": "C.UTF-8", "TERM": "xterm"}
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Replaces the user's cache folder by an empty one."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test session, without a port; tests that need one are skipped if none is installed."""
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer.started() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> str:
    """The ``server`` argument of ``Ledger.open``: empty for SQLite, or the address of a new study on the server."""
    if request.param == "sqlite":
        return ""
    own: PostgresServer = request.getfixturevalue("postgres")
    return own.study()
