"""Exports a study: a flat table, a history, or an Optuna storage."""

from pathlib import Path

from strategist.contract.study import Study
from strategist.errors import InputError
from strategist.files import outputs
from strategist.ledger.address import is_server, parse, redacted
from strategist.ledger.ledger import Ledger
from strategist.search.study import FinishedTrial, Tried, save
from strategist.tuner import flat_table
from strategist.tuner.study import study_of

OPTUNA = "sqlite:///"
HISTORY = ".jsonl"
KINDS = f"FILE.csv, FILE.parquet, FILE.jsonl or {OPTUNA}FILE.db"


def export(location: str | Path, target: str, *, force: bool = False) -> int:
    """Writes the study in the format given by the target's name: CSV, Parquet, JSON lines of a history, or an Optuna storage.
    Returns the number of trials written.

    Without ``force``, a file with other content is not overwritten. Trials are added to an existing Optuna storage.

    Raises:
        InputError: the target's kind is unknown, or a package that it needs is not installed.
        FileError: the study cannot be read, or the target cannot be written.
    """
    path = Path(target.removeprefix(OPTUNA))
    known_format = target.startswith(OPTUNA) or (
        "://" not in target and path.suffix in (flat_table.CSV, flat_table.PARQUET, HISTORY)
    )
    if not known_format or not path.name:
        raise InputError(f"--to {redacted(target)}", "has no known format", f"write {KINDS}")
    outputs.check(path)
    with Ledger.open(location) as ledger:
        study = study_of(ledger)
        if path.suffix == HISTORY and not target.startswith(OPTUNA):
            ledger.export_jsonl(path, force=force)
            return sum(trial.measurement is not None for trial in study.trials)
    if target.startswith(OPTUNA):
        return _optuna(study, target, parse(str(location), "study").study if is_server(location) else Path(study.study).name)
    flat_table.write(study, path, force=force)
    return len(study.trials)


def _optuna(study: Study, target: str, name: str) -> int:
    """Saves finished trials only: Optuna would treat the rest as running in its own workers."""
    trials = [
        FinishedTrial(
            tried=Tried(plan=trial.plan, measurement=trial.measurement), started=trial.started, ended=trial.ended,
            attributes={name: cell for name, cell in flat_table.row(trial).items() if cell is not None and "." not in name},
        )
        for trial in study.finished
        if trial.measurement is not None and trial.started is not None and trial.ended is not None
    ]  # fmt: skip
    save(trials, target, name, study.goals)
    return len(trials)
