"""What every test may count on."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from postgres_server import PostgresServer, missing

pytest_plugins = ("chaos",)
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Processes that tests start hear signals, although a job in the background or under nohup begins with some of them ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_stands() -> None:
    """What the person who runs the tests has configured decides none of them."""
    for name in [name for name in os.environ if name.startswith("STRATEGIST_")]:
        del os.environ[name]
    os.environ["STRATEGIST_CONFIG"] = ""
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the person's cache folder holds decides no test, and no test writes there."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this session's own, without a port; where none is installed, what needs it is skipped."""
    if reason := missing():
        pytest.skip(reason)
    with PostgresServer.started() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> str:
    """What ``Ledger.open(..., server=)`` takes: nothing for SQLite, and a study of its own on the server."""
    if request.param == "sqlite":
        return ""
    own: PostgresServer = request.getfixturevalue("postgres")
    return own.study()
