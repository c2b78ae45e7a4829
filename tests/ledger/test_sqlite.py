"""A ledger in an SQLite file: creation, refusals, and detection of damage."""

import sqlite3
from pathlib import Path

import pytest

from strategist.contract.measurement import Outcome
from strategist.errors import FileError
from strategist.ledger import schema, sqlite
from strategist.ledger.ledger import Ledger
from strategist.ledger.sqlite import FILE_NAME


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A closed study with six trials, four of them finished."""
    folder = tmp_path / "study"
    with Ledger.open(folder, create=True) as ledger:
        ledger.set_fact("request", "32b")
        for key in "abcdef":
            ledger.enqueue(key, f'{{"plan": "{key * 9000}"}}', "predicted")
        for number in range(4):
            ledger.finish(ledger.claim("w", 1000.0), Outcome.OK, f'{{"step_seconds": 0.{number + 1}}}')
    return folder


def contents(folder: Path) -> tuple[object, ...]:
    with Ledger.open(folder) as ledger:
        return (*ledger.trials(), ledger.fact("request"))


def edit(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute(statement)
    connection.close()


def test_a_closed_study_is_one_file(study: Path):
    assert [path.name for path in study.iterdir()] == [FILE_NAME]


def test_a_folder_without_a_study_is_refused_and_unchanged(tmp_path: Path):
    with pytest.raises(FileError, match="there is no study"):
        Ledger.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("create", [True, False])
def test_files_that_are_no_study_are_refused(tmp_path: Path, create: bool):
    file = tmp_path / FILE_NAME
    file.write_text("not a database, but long enough to be read as one" * 40)
    with pytest.raises(FileError, match=r"study\.sqlite: is damaged or not a study"):
        Ledger.open(tmp_path, create=create)
    file.unlink()
    edit(tmp_path, "CREATE TABLE other (x)")
    with pytest.raises(FileError, match=r"study\.sqlite: is not a study"):
        Ledger.open(tmp_path, create=create)


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be created"):
        Ledger.open(tmp_path / "file" / "study", create=True)


def test_a_newer_study_is_refused_and_an_older_study_migrated(study: Path, monkeypatch: pytest.MonkeyPatch):
    before = contents(study)
    newer = (*schema.MIGRATIONS, "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('new')")
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", newer)
        later.setattr(schema, "SCHEMA", len(newer))
        assert contents(study) == before
        assert contents(study) == before  # the upgrade ran once: a second CREATE TABLE would fail
    with pytest.raises(FileError, match=r"study\.sqlite: has schema 3, newer than 2.*upgrade it"):
        Ledger.open(study)


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE trial SET plan = '{}' WHERE number = 2", "trial 2:"),
        ("UPDATE trial SET key = 'z' WHERE number = 3", "trial 3:"),
        ("UPDATE trial SET state = 'queued' WHERE number = 1", "trial 1:"),
        ("UPDATE trial SET plan = x'00ff' WHERE number = 6", "trial 6:"),
        ("UPDATE attempt SET measurement = '{\"step_seconds\": 0.01}' WHERE trial = 4", "trial 4 attempt 1:"),
        ("UPDATE attempt SET outcome = 'oom' WHERE trial = 1", "trial 1 attempt 1:"),
        ("DELETE FROM attempt WHERE trial = 2", "trial 2: the row of an attempt is missing"),
        ("DELETE FROM trial WHERE number = 5", "trial 5: the row is missing"),
        ("UPDATE study SET value = '70b'", "study request:"),
        ("UPDATE schema_version SET version = 'x'", "schema version cannot be read"),
        ("DROP TABLE attempt", "no such table"),
    ],
)
def test_a_corrupted_row_is_named(study: Path, statement: str, place: str):
    edit(study, statement)
    with pytest.raises(FileError, match=place) as caught:
        contents(study)
    assert str(caught.value).startswith(str(study / FILE_NAME))


def test_a_damaged_trial_cannot_be_claimed(study: Path):
    edit(study, "UPDATE trial SET plan = '{}' WHERE number = 5")
    with Ledger.open(study) as ledger, pytest.raises(FileError, match="trial 5:"):
        ledger.claim("w", 1000.0)


def test_a_full_disk_is_reported_in_one_line(study: Path):
    with Ledger.open(study) as ledger:
        pages = ledger._database._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._database._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(FileError, match="the disk is full"):
            ledger.enqueue("big", '{"plan": "' + "x" * 100_000 + '"}', "")
        ledger._database._connection.execute("PRAGMA max_page_count = 1000000")
        assert len(ledger.trials()) == 6
        assert ledger.enqueue("big", "{}", "") == 7


def test_a_lock_held_too_long_is_reported_in_one_line(study: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    with Ledger.open(study) as ledger, sqlite3.connect(study / FILE_NAME) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FileError, match="locked by another process"):
            ledger.claim("w", 1.0)
        other.rollback()
        assert ledger.claim("w", 1.0) is not None
    other.close()


def test_the_file_system_of_a_folder_is_detected(tmp_path: Path):
    assert sqlite.filesystem(Path("/proc/self")) == "proc"
    assert sqlite.filesystem(tmp_path) not in ("proc", *sqlite.NETWORK_FILESYSTEMS)
