"""Exports a study: a flat table, a history, or an Optuna storage."""

from pathlib import Path

from strategist.contract.study import Study
from strategist.errors import InputError
from strategist.files import outputs
from strategist.ledger.address import is_server, parse, redacted
from strategist.ledger.ledger import Ledger
from strategist.search.study import FinishedTrial, Tried, save
from strategist.tuner import flat_table
from strategist.tuner.study import seen

OPTUNA = "sqlite:///"
HISTORY = ".jsonl"
KINDS = f"FILE.csv, FILE.parquet, FILE.jsonl or {OPTUNA}FILE.db"


def export(place: str | Path, target: str, *, force: bool = False) -> int:
    """Writes the study as the target's name says: CSV, Parquet, the lines of a history, or a storage of Optuna's. Returns the
    number of trials written. Without ``force``, a file of another kind stays; a storage of Optuna's is added to.

    Raises:
        InputError: the target is of no known kind, or what it needs is not installed.
        FileError: the study cannot be read, or the target not be written.
    """
    path = Path(target.removeprefix(OPTUNA))
    known = target.startswith(OPTUNA) or ("://" not in target and path.suffix in (flat_table.CSV, flat_table.PARQUET, HISTORY))
    if not known or not path.name:
        raise InputError(f"--to {redacted(target)}", "is of no known kind", f"write {KINDS}")
    outputs.check(path)
    with Ledger.open(place) as ledger:
        study = seen(ledger)
        if path.suffix == HISTORY and not target.startswith(OPTUNA):
            ledger.export_jsonl(path, force=force)
            return sum(trial.measurement is not None for trial in study.trials)
    if target.startswith(OPTUNA):
        return _optuna(study, target, parse(str(place), "study").study if is_server(place) else Path(study.study).name)
    flat_table.write(study, path, force=force)
    return len(study.trials)


def _optuna(study: Study, target: str, name: str) -> int:
    """Only what is finished: Optuna would take the rest for trials that its own workers hold."""
    told = [
        FinishedTrial(
            tried=Tried(plan=trial.plan, measurement=trial.measurement), started=trial.started, ended=trial.ended,
            attributes={name: cell for name, cell in flat_table.row(trial).items() if cell is not None and "." not in name},
        )
        for trial in study.finished
        if trial.measurement is not None and trial.started is not None and trial.ended is not None
    ]  # fmt: skip
    save(told, target, name, study.goals)
    return len(told)
