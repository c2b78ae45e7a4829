"""Repairs a study with a damaged ledger: rebuilds it from its intact rows and the records of its history."""

from dataclasses import replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement
from strategist.contract.request import Request
from strategist.contract.study import HISTORY, TrialState
from strategist.errors import FileError, InputError
from strategist.frozen import frozen
from strategist.ledger.ledger import Ledger
from strategist.ledger.recovery import Recovered, recover
from strategist.ledger.rows import AttemptRow, TrialRow
from strategist.profiles import history
from strategist.profiles.situation import situation
from strategist.tuner.import_trials import Found, finished_rows, mismatch, native


@frozen
class Repaired:
    """Result of a repair.

    study: folder of the new study.
    kept: number of trials that were recovered completely.
    from_history: old numbers of the trials whose result came from the history.
    queued: old numbers of the trials that are queued again, because their result is lost.
    lost: old numbers of the trials that could not be recovered.
    """

    study: str
    kept: int
    from_history: tuple[int, ...]
    queued: tuple[int, ...]
    lost: tuple[int, ...]


def repair(study: Path, into: Path, request: Request | None = None) -> Repaired:
    """Creates a new study from all intact records of a damaged one, which is not changed.

    Args:
        request: the study's request; needed if the damaged ledger has lost it.

    Raises:
        InputError: ``into`` exists already, or the study has another request.
        FileError: there is no study, or its request is unknown.
    """
    if into.exists():
        raise InputError(f"--into {into}", "is there already", "name a new folder: a repair changes nothing that is there")
    found = recover(study)
    facts, records = _facts(study, found, request), _records(study / HISTORY)
    with Ledger.open(into, create=True) as ledger:
        for name, text in facts.items():
            ledger.set_fact(name, text)
        from_history, queued, lost = list[int](), list[int](), list[int]()
        for number in range(1, max([0, *found.trials, *records, *(row.trial for row in found.attempts)]) + 1):
            row, source = _complete_row(found, number), list[int]()
            if number in records and (row is None or row.state is not TrialState.FINISHED):  # the row is older than the record
                row, source = records[number], from_history
            elif row is None and number in found.trials:
                row, source = replace(found.trials[number], state=TrialState.QUEUED), queued
            imported = row is not None and ledger.import_trial(row)
            (source if imported else lost).append(number)
        ledger.export_jsonl(into.resolve() / HISTORY)
        intact_count = len(ledger.trials()) - len(from_history) - len(queued)
    return Repaired(
        study=str(into.resolve()), kept=intact_count, from_history=tuple(from_history), queued=tuple(queued), lost=tuple(lost)
    )


def _facts(study: Path, found: Recovered, request: Request | None) -> dict[str, str]:
    """The facts of the study as a whole, such as its request and kind."""
    if "request" in found.facts:
        if request is not None:
            raise InputError(f"study {study}", "still contains its request", "leave out --request")
        return found.facts
    if request is None:
        remedy = "say it again in a file, and name it with --request"
        raise FileError(study, f"what the study was asked cannot be read any more: {remedy}")
    study_situation = situation(native(request))
    for number, row in found.trials.items():
        if (name := mismatch(row.plan, study_situation)) is not None:
            raise InputError(f"study {study}", f"trial {number} is of another {name}", "correct the file of --request")
    facts = {"request": codec.dumps(study_situation.request), **found.facts}
    texts = [row.measurement_json for row in found.attempts if row.measurement_json]
    if texts and (kind := codec.loads(Measurement, texts[0]).kind) is not Kind.REAL:
        facts["kind"] = kind.value
    return facts


def _complete_row(found: Recovered, number: int) -> TrialRow | None:
    """A trial with all its attempts; None if an attempt is missing. A running trial is queued again without its last attempt."""
    trial = found.trials.get(number)
    if trial is None:
        return None
    attempts = tuple(sorted((row for row in found.attempts if row.trial == number), key=lambda row: row.attempt))
    if [row.attempt for row in attempts] != list(range(1, trial.attempt + 1)):
        return None
    return _queued_again(trial, attempts) if trial.state is not TrialState.FINISHED else replace(trial, attempts=attempts)


def _queued_again(trial: TrialRow, attempts: tuple[AttemptRow, ...]) -> TrialRow:
    ended = tuple(row for row in attempts if row.ended is not None)
    return replace(trial, state=TrialState.QUEUED, attempts=ended, attempt=len(ended), owner=None, lease_until=None)


def _records(path: Path) -> dict[int, TrialRow]:
    """Finished trials of a history by number; empty if it is missing or damaged."""
    try:
        records = [record for record in history.read(path).records if record.trial is not None]
    except FileError:
        return {}
    found = [Found(plan=record.plan, measurement=record.measurement, proposed_by=record.proposed_by) for record in records]
    return {record.trial: row for record, row in zip(records, finished_rows(found), strict=True) if record.trial is not None}
