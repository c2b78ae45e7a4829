"""Study as shown to users: its request, its state, and each trial with its plan and measurement."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.measurement import Outcome
from strategist.contract.request import Request
from strategist.contract.study import Study, StudyStatus, StudySummary, StudyTrial, TrialState
from strategist.errors import FileError
from strategist.ledger import address as addresses
from strategist.ledger.address import ADDRESS_FILE
from strategist.ledger.ledger import Ledger, studies_on
from strategist.ledger.rows import TrialRow
from strategist.ledger.sqlite import FILE_NAME
from strategist.tuner.finalists import finalists, front, nearest
from strategist.tuner.study_folder import goals_of, kind_of
from strategist.tuner.warm_start import warm_start_summaries


def read(location: str | Path) -> Study:
    """The study in a folder, or at an address of a server.

    Raises:
        FileError, InputError: there is no study, or its ledger cannot be read.
    """
    with Ledger.open(location) as ledger:
        return study_of(ledger)


def study_of(ledger: Ledger) -> Study:
    """The current study of a ledger.

    Raises:
        FileError: the ledger has no request yet, or is damaged.
    """
    if (request_json := ledger.fact("request")) is None:
        raise FileError(ledger.name, "holds no request: no tuning has begun there; name another")
    request, rows, now = codec.loads(Request, request_json), ledger.trials(), ledger.now()
    goals = goals_of(ledger, request)
    trials = tuple(trial_of(row, goals) for row in rows)
    ranked = finalists(trials, goals)
    front_numbers = front(ranked, goals)
    if goals.several:
        trials = tuple(replace(trial, front=trial.number in front_numbers) for trial in trials)
    return Study(
        study=str(ledger.folder or ledger.name), request=request, kind=kind_of(ledger), status=_status(rows, now),
        best=ranked[0].trial.number if ranked else None, trials=trials, warmed_by=warm_start_summaries(ledger), goals=goals,
        front=front_numbers, nearest=None if ranked else nearest(trials, goals),
    )  # fmt: skip


def trial_of(row: TrialRow, goals: Goals) -> StudyTrial:
    """The trial of a ledger row."""
    last = row.attempts[-1] if row.attempts else None
    plan, measurement = row.plan, row.measurement
    ran = measurement is not None and measurement.outcome is Outcome.OK
    return StudyTrial(
        number=row.number, proposed_by=row.proposed_by, state=row.state.value, outcome=row.outcome, attempts=row.attempt,
        owner=last.owner if last else None, started=last.started if last else None, ended=last.ended if last else None,
        plan=plan, measurement=measurement, misses=tuple(goals.missed(plan, measurement)) if measurement and ran else (),
    )  # fmt: skip


def _status(rows: tuple[TrialRow, ...], now: float) -> StudyStatus:
    """Status by the ledger's clock: a tuner with an expired lease does not count as running."""
    if any(row.lease_until is not None and row.lease_until >= now for row in rows):
        return StudyStatus.RUNNING
    return StudyStatus.FINISHED if all(row.state is TrialState.FINISHED for row in rows) else StudyStatus.WAITING


def summary(location: str | Path) -> StudySummary:
    """Summary of the study; for a study that cannot be read, the reason."""
    try:
        study = read(location)
    except FileError as error:
        return StudySummary(study=str(location), problem=error.message)
    request, best = study.request, study.best_trial
    short = StudySummary(
        study=str(location), model=request.model, gpus=request.gpus, objective=", ".join(study.goals.objectives),
        status=study.status, trials=len(study.trials), finished=len(study.finished), best=study.best,
    )  # fmt: skip
    if best is None or best.measurement is None:
        return short
    return replace(
        short,
        best_step_seconds=best.measurement.step_seconds,
        best_tokens_per_second=best.measurement.tokens_per_second,
        best_peak_memory_bytes=max(best.measurement.peak_memory_bytes, default=None),
    )


def find(location: str | Path) -> Iterator[str | Path]:
    """The studies in a folder and below it, or in a server's database, in order of their names.

    Raises:
        FileError, InputError: there is no such folder, or the server cannot be reached.
    """
    if addresses.is_server(location):
        yield from studies_on(str(location))
        return
    if not Path(location).is_dir():
        raise FileError(location, "is not a folder; name one of studies")
    for folder, subfolders, files in os.walk(location):
        if FILE_NAME in files or ADDRESS_FILE in files:
            yield Path(folder)
            subfolders.clear()  # folders of trials contain no studies
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
