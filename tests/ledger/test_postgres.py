"""A ledger on a PostgreSQL server: addresses of studies, refusals, reconnection, and errors in one line."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import psycopg
import pytest
from chaos import Chaos
from ledger.workers import Work, audit, enqueue, finish, start
from postgres_server import PostgresServer

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.errors import FileError, InputError
from strategist.ledger import address, postgres, schema
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim

LONG = 1000.0


@pytest.fixture
def stoppable_server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server; a test may stop it, and it runs again for the next test."""
    yield postgres
    if not postgres.runs:
        postgres.start()


@pytest.fixture
def place(postgres: PostgresServer) -> str:
    return postgres.study()


def execute(place: str, statement: str) -> None:
    found = address.parse(place, "")
    with psycopg.connect(found.server, autocommit=True) as connection:
        connection.execute(f'SET search_path = "strategist_{found.study}"')
        connection.execute(statement)


def test_a_folder_remembers_its_server(tmp_path: Path, place: str) -> None:
    with Ledger.open(tmp_path / "study", create=True, server=place) as ledger:
        ledger.enqueue("a", "{}", "")
    assert sorted(path.name for path in (tmp_path / "study").iterdir()) == [address.ADDRESS_FILE]
    for again in ({}, {"server": place}, {"create": True}):
        with Ledger.open(tmp_path / "study", **again) as ledger:
            assert len(ledger.trials()) == 1
    with Ledger.open(place) as ledger:
        assert ledger.folder is None
        assert len(ledger.trials()) == 1


def test_a_study_without_a_name_has_the_name_of_its_folder(tmp_path: Path, postgres: PostgresServer) -> None:
    for folder in (tmp_path / "here" / "first", tmp_path / "there" / "first"):
        with Ledger.open(folder, create=True, server=postgres.address) as ledger:
            number = ledger.enqueue(folder.parent.name, "{}", "")
    assert number == 2
    assert "first" in postgres_studies(postgres)


def postgres_studies(server: PostgresServer) -> list[str]:
    return postgres.studies(address.parse(server.address, "", "any"))


def test_studies_on_one_server_are_isolated(tmp_path: Path, postgres: PostgresServer) -> None:
    for name in ("one", "two"):
        with Ledger.open(tmp_path / name, create=True, server=postgres.study()) as ledger:
            assert ledger.enqueue("a", "{}", "") == 1
            ledger.set_fact("request", name)


def test_a_folder_has_one_ledger(tmp_path: Path, postgres: PostgresServer, place: str) -> None:
    Ledger.open(tmp_path / "server", create=True, server=place).close()
    Ledger.open(tmp_path / "file", create=True).close()
    with pytest.raises(InputError, match=r"the ledger of .* is postgresql"):
        Ledger.open(tmp_path / "server", create=True, server=postgres.study())
    with pytest.raises(InputError, match=r"the ledger of .* is study\.sqlite in it"):
        Ledger.open(tmp_path / "file", create=True, server=place)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("studies/first", "is not an address"),
        ("mysql://ada@db/tuning", "is not an address"),
        ("postgresql://ada@db", "names no database"),
        ("postgresql://ada@db/tuning?study=a/b", "names no study"),
        ("postgresql://ada:SECRET@db/tuning", "holds a password"),
        ("postgresql://ada:SE/CRET@db/tuning", "holds a password"),
        ("postgresql://ada:SE@CRET@db/tuning", "holds a password"),
        ("postgresql://ada:SE?CRET@db/tuning", "holds a password"),
        ("postgresql://ada@db/tuning?password=SECRET", "holds a password"),
        ("postgresql:///tuning?sslpassword=SECRET&host=db", "holds a password"),
        ("nosuch://ada:SECRET@db/tuning", "is not an address"),
    ],
)
def test_an_invalid_address_is_refused_without_showing_a_password(tmp_path: Path, text: str, law: str) -> None:
    with pytest.raises(InputError, match=law) as caught:
        Ledger.open(tmp_path / "study", create=True, server=text)
    assert "SE" not in str(caught.value).replace("USER", "").replace("DATABASE", "")
    assert "CRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_an_invalid_server_address_is_named(tmp_path: Path) -> None:
    (tmp_path / address.ADDRESS_FILE).write_text("postgresql://ada:SECRET@db/tuning")
    with pytest.raises(FileError, match=r"ledger\.url: holds no address of a ledger: holds a password") as caught:
        Ledger.open(tmp_path)
    assert "SECRET" not in str(caught.value)


def test_a_refusal_of_the_server_is_reported_in_one_line(tmp_path: Path, postgres: PostgresServer, place: str) -> None:
    for text, law in (
        (place.replace("/postgres?", "/nosuch?"), 'is refused: database "nosuch" does not exist'),
        (place.replace("user=postgres", "user=missing"), 'is refused: role "missing" does not exist'),
    ):
        with pytest.raises(FileError, match=law) as caught:
            Ledger.open(tmp_path / "study", create=True, server=text)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileError, match="there is no study of this name"):
        Ledger.open(place)
    assert not list(tmp_path.glob("*/*"))


def test_an_unreachable_server_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot be reached: .*; nothing finished is lost") as caught:
        Ledger.open(tmp_path / "study", create=True, server=f"postgresql:///db?host={tmp_path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "place_named"),
    [
        ("UPDATE trial SET plan = '{}' WHERE number = 2", "trial 2:"),
        ("UPDATE attempt SET outcome = 'oom' WHERE trial = 1", "trial 1 attempt 1:"),
        ("DELETE FROM attempt WHERE trial = 1", "trial 1: the row of an attempt is missing"),
        ("DELETE FROM trial WHERE number = 2", "trial 2: the row is missing"),
        ("UPDATE schema_version SET version = 99", "has schema 99, newer than 2"),
        ("DELETE FROM schema_version", "schema version cannot be read"),
        ("DROP TABLE attempt", 'relation "attempt" does not exist'),
    ],
)
def test_a_corrupted_row_is_named(tmp_path: Path, place: str, statement: str, place_named: str) -> None:
    with Ledger.open(tmp_path, create=True, server=place) as ledger:
        for key in "abc":
            ledger.enqueue(key, '{"plan": 1}', "")
        ledger.finish(ledger.claim("w", LONG), Outcome.OK, '{"step_seconds": 1}')
    execute(place, statement)
    with pytest.raises(FileError, match=place_named) as caught, Ledger.open(tmp_path) as ledger:
        ledger.trials()
    assert str(caught.value).startswith("postgresql:///postgres?")


def test_an_older_study_is_migrated_once(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(tmp_path, create=True, server=place).close()
    monkeypatch.setattr(
        schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('new')")
    )
    monkeypatch.setattr(schema, "SCHEMA", len(schema.MIGRATIONS))
    for _ in range(2):  # the second opening migrates nothing: a second CREATE TABLE would fail
        Ledger.open(tmp_path).close()


def interrupted(stoppable_server: PostgresServer, ledger: Ledger, act: Callable[[], object], how: str) -> object:
    """The result of ``act``, which starts while the server is unreachable."""
    if how == "restarted":
        stoppable_server.stop()
    else:
        execute_on(stoppable_server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'strategist'")
        return act()
    found: list[object] = []
    worker = threading.Thread(target=lambda: found.append(act()))
    worker.start()
    stoppable_server.start()
    worker.join()
    return found[0]


def execute_on(stoppable_server: PostgresServer, statement: str) -> None:
    with psycopg.connect(stoppable_server.address, autocommit=True) as connection:
        connection.execute(statement)


@pytest.mark.parametrize("how", [pytest.param("restarted", marks=pytest.mark.full), "cut off"])
def test_ledger_calls_succeed_after_a_server_restart(tmp_path: Path, stoppable_server: PostgresServer, how: str) -> None:
    with Ledger.open(tmp_path, create=True, server=stoppable_server.study()) as ledger:
        assert interrupted(stoppable_server, ledger, lambda: ledger.enqueue("a", "{}", ""), how) == 1
        claim = interrupted(stoppable_server, ledger, lambda: ledger.claim("w", LONG), how)
        assert interrupted(stoppable_server, ledger, lambda: ledger.renew(claim, LONG), how)
        assert interrupted(stoppable_server, ledger, lambda: ledger.finish(claim, Outcome.OK, '{"x": 1}'), how)
        (trial,) = interrupted(stoppable_server, ledger, ledger.trials, how)
        assert (trial.outcome, trial.attempt) == (Outcome.OK, 1)


@dataclass(frozen=True, kw_only=True)
class Tuners:
    """Tuners of one study; their finished trials are counted from their log files."""

    work: Work
    names: tuple[str, ...]

    def finished(self) -> list[int]:
        logs = [self.work.folder / f"{name}.acknowledged" for name in self.names]
        return [log.read_bytes().count(b"\n") if log.exists() else 0 for log in logs]

    def seconds_until_all_progress(self, processes: list[BaseProcess]) -> float:
        begun, before = time.monotonic(), self.finished()
        while not all(now > then for now, then in zip(self.finished(), before, strict=True)):
            assert all(process.is_alive() for process in processes), "a tuner ended"
            time.sleep(0.01)
        return time.monotonic() - begun


@pytest.mark.chaos("The store", "a server that is unreachable for a while, 8 tuners")
@pytest.mark.parametrize(
    "how", [pytest.param("restarted", marks=pytest.mark.full), "killed", pytest.param("cut off", marks=pytest.mark.full)]
)
def test_all_tuners_continue_after_a_server_restart(
    tmp_path: Path, stoppable_server: PostgresServer, how: str, chaos: Chaos
) -> None:
    chance, waits = chaos.random(), list[float]()
    work = Work(folder=tmp_path, lease_seconds=30.0, trial_seconds=0.02, proposes=True)
    tuners = Tuners(work=work, names=tuple(f"w{index}" for index in range(chaos.size(4, 8))))
    enqueue(tmp_path, stoppable_server.study(), len(tuners.names))
    processes = [start(work.run, name) for name in tuners.names]
    try:
        tuners.seconds_until_all_progress(processes)
        for _ in range(chaos.size(1, 10)):
            if how == "cut off":
                execute_on(
                    stoppable_server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'strategist'"
                )
            else:
                stoppable_server.stop(signal.SIGKILL if how == "killed" else signal.SIGQUIT)
                time.sleep(chance.uniform(0.0, chaos.size(1, 3)))
                stoppable_server.start()
            waits.append(tuners.seconds_until_all_progress(processes))
    finally:
        for process in processes:
            process.kill()
            process.join()
    with Ledger.open(tmp_path) as ledger:
        for trial in ledger.trials():
            if trial.state is TrialState.RUNNING:
                ledger.renew(Claim(number=trial.number, attempt=trial.attempt, plan_json=trial.plan_json), -1.0)
    finish(replace(work, proposes=False, trial_seconds=0.0))
    found = audit(tmp_path, set(tuners.names))
    assert (found.lost, found.doubled, found.stuck, found.not_retried) == (0, 0, 0, 0)
    assert found.given_up <= len(processes), "a trial was given up whose tuner lived"
    chaos.found(f"{len(waits)} times: all continued within {max(waits):.1f} s of its return (5 s allowed)")
    chaos.found(f"{found.lost} lost of {found.acknowledged:,}, {found.doubled} done twice, {found.stuck} stuck")


def test_a_server_that_stays_away_is_reported_in_one_line_and_then_at_once(
    tmp_path: Path, stoppable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 0.5)
    with Ledger.open(tmp_path, create=True, server=stoppable_server.study()) as ledger:
        stoppable_server.stop()
        for _ in range(2):
            with pytest.raises(FileError, match="cannot be reached: ") as caught:
                ledger.claim("w", LONG)
            assert "\n" not in str(caught.value)
            monkeypatch.setattr(postgres, "RECONNECT_SECONDS", 3600.0)  # the second call does not wait
        stoppable_server.start()
        assert ledger.enqueue("a", "{}", "") == 1


class CutAtCommit:
    """A connection whose server is lost during COMMIT, after or before the commit takes effect."""

    def __init__(self, connection: psycopg.Connection, reaches: bool) -> None:
        self._connection, self._reaches = connection, reaches

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: object, values: object = None) -> object:
        if statement != "COMMIT":
            return self._connection.execute(statement, values)
        if self._reaches:
            self._connection.execute("COMMIT")
        self._connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


@pytest.mark.parametrize("reaches", [True, False])
def test_a_commit_without_an_answer_takes_effect_once(tmp_path: Path, place: str, reaches: bool) -> None:
    with Ledger.open(tmp_path, create=True, server=place) as ledger:
        for key in "ab":
            ledger.enqueue(key, "{}", "")

        def cut() -> None:
            database = ledger._database
            database._connection = CutAtCommit(database._connection, reaches)

        cut()
        claim = ledger.claim("w", LONG)
        assert [trial.state for trial in ledger.trials()] == [TrialState.RUNNING, TrialState.QUEUED]
        cut()
        assert ledger.finish(claim, Outcome.INFRASTRUCTURE, '{"x": 1}')
        assert [attempt.outcome for trial in ledger.trials() for attempt in trial.attempts] == [Outcome.INFRASTRUCTURE]


def test_a_process_stopped_in_a_transaction_does_not_block_others(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SETTINGS", ("SET idle_in_transaction_session_timeout = '100ms'",))
    with Ledger.open(tmp_path, create=True, server=place) as still, Ledger.open(tmp_path) as other:
        still.enqueue("a", "{}", "")
        entered, passed = threading.Event(), []

        def lock_row(transaction: postgres.PostgresTransaction) -> None:
            transaction.rows("SELECT version FROM schema_version FOR UPDATE")
            entered.set()
            if not passed:
                passed.append(other.enqueue("b", "{}", ""))  # waits for the row until the server ends the first transaction

        still._database.write(lock_row)
        assert entered.is_set()
        assert passed == [2]


def test_a_missing_psycopg_is_reported_with_the_install_command(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from strategist.ledger.ledger import Ledger\n"
        "try:\n    Ledger.open(sys.argv[1], create=True, server='postgresql://ada@db/tuning')\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "s")], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("InputError ledger postgresql://ada@db/tuning?study=s: needs psycopg")
    assert "pip install 'torch-strategist[postgres]'" in done.stdout
