"""Recovery of rows from the pages of an SQLite file whose tables are lost."""

import sqlite3
from dataclasses import replace
from pathlib import Path

from strategist.contract.measurement import Outcome
from strategist.ledger.ledger import Ledger
from strategist.ledger.recovery import recover
from strategist.ledger.rows import TrialRow
from strategist.ledger.sqlite import FILE_NAME


def test_times_in_whole_seconds_are_recovered_as_floats(tmp_path: Path) -> None:
    """SQLite stores such a number as an integer, whose checksum would differ."""
    with Ledger.open(tmp_path, create=True) as ledger:
        ledger.enqueue("a", '{"plan": 1}', "search")
        ledger.finish(ledger.claim("w", 1000.0), Outcome.OK, '{"step_seconds": 0.5}')
        (trial,) = ledger.trials()
    whole = replace(trial.attempts[0], started=1_700_000_000.0, ended=1_700_000_060.0)
    written(tmp_path / "whole", replace(trial, key="b", attempts=(whole,)))
    with sqlite3.connect(tmp_path / "whole" / FILE_NAME) as connection:
        connection.execute("PRAGMA writable_schema = on")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'attempt'")
    connection.close()
    (found,) = recover(tmp_path / "whole").attempts
    assert found == whole
    assert type(found.started) is type(found.ended) is float


def written(folder: Path, trial: TrialRow) -> None:
    with Ledger.open(folder, create=True) as ledger:
        ledger.import_trial(trial)
