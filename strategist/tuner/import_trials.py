"""Imports trials into a study: from files, and from other studies of the same request."""

import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strategist.cards.deck import Deck
from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.knobs import Candidate, Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.measurement import EVIDENCE_OUTCOMES, Evidence, Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.setting_parser import parse_fix
from strategist.contract.settings import SETTING_NAMES, full_name, with_settings
from strategist.contract.study import HISTORY, REPEAT, ImportResult, TrialState, repeat_key
from strategist.cost.calibration import Calibration
from strategist.errors import FileError, InputError, StrategistError, did_you_mean, not_among
from strategist.frozen import frozen
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import AttemptRow, TrialRow
from strategist.planning.planner import price_candidate
from strategist.profiles import history
from strategist.profiles.situation import Situation, situation
from strategist.tuner import flat_table
from strategist.tuner.study_folder import differences, kind_of, owner, set_request

SETTINGS = {name: bare for bare in SETTING_NAMES for name in (bare, full_name(bare))}
"""Settings by the names of their columns, which are bare or full names."""

IGNORED = tuple(name for name in (*flat_table.ABOUT, *flat_table.PREDICTED) if name not in ("outcome", "proposed_by"))
"""Columns of an exported study that describe neither the candidate nor the measurement."""

COLUMNS = (*SETTINGS, *flat_table.MEASURED, "outcome", "proposed_by", *IGNORED)
OPEN = (TrialState.QUEUED.value, TrialState.RUNNING.value)


@frozen
class Found:
    """A measured candidate read from a file."""

    plan: Plan
    measurement: Measurement
    proposed_by: str


def native(request: Request) -> Request:
    """The request as a study stores it: back end ``any`` becomes ``native``."""
    return replace(request, backend="native") if request.backend == "any" else request


def import_file(
    path: Path,
    study: Path,
    *,
    deck: Deck,
    request: Request | None = None,
    calibration: Calibration | None = None,
    server: str = "",
) -> ImportResult:
    """Imports the measured candidates of a CSV, Parquet or history file into a study. If there is no study, ``request`` begins one.

    Raises:
        InputError: the study has another request, or there is no study and no request.
        FileError: the file cannot be read, or a row holds no measured candidate of this request; nothing is imported then.
    """
    if request is not None:
        study_situation = situation(native(request))
        found = tuple(_found(path, study_situation, deck, calibration))  # read before the study is created
    with Ledger.open(study, create=request is not None, server=server) as ledger:
        folder = study.resolve()
        if request is None:
            if (request_json := ledger.fact("request")) is None:
                raise InputError(f"study {folder}", "holds no request", "say which: --model, --gpus and what else it is of")
            study_situation = situation(codec.loads(Request, request_json))
            found = tuple(_found(path, study_situation, deck, calibration))
        set_request(ledger, folder, study_situation, Kind.REAL, ledger.fact("program") or "")
        imported = sum([ledger.import_trial(row) for row in finished_rows(found)])
        ledger.export_jsonl(folder / HISTORY)
    return ImportResult(study=str(folder), imported=imported, duplicates=len(found) - imported)


def _found(path: Path, study_situation: Situation, deck: Deck, calibration: Calibration | None) -> Iterator[Found]:
    if path.suffix == ".jsonl":
        yield from _from_history(path, study_situation)
    elif path.suffix in (flat_table.CSV, flat_table.PARQUET):
        for line, cells in flat_table.read(path):
            try:
                if cells.get("state") not in OPEN:
                    yield _from_cells(cells, study_situation, deck, calibration, f"import:{path.name}")
            except StrategistError as error:
                raise FileError(path, str(error), line) from None
    else:
        raise InputError(str(path), "has no known format", "give a file that ends in .csv, .parquet or .jsonl")


def mismatch(plan: Plan, study_situation: Situation) -> str | None:
    """The first of model, cluster and workload in which the plan differs from the study; None if it differs in none."""
    expected_values = {
        "model": study_situation.model,
        "cluster": study_situation.cluster,
        "workload": study_situation.request.workload,
    }
    return next((name for name, expected in expected_values.items() if getattr(plan, name) != expected), None)


def _from_history(path: Path, study_situation: Situation) -> Iterator[Found]:
    """The records of a history; each must have the model, devices and workload of the request."""
    read = history.read(path)
    for finding in read.findings:
        raise FileError(path, finding.message, finding.line)
    for record in read.records:
        plan = record.plan
        if (name := mismatch(plan, study_situation)) is not None:
            raise FileError(path, f"trial {record.trial or '?'}: is of another {name} than the study; merge it into one of its own")
        if (kind := record.measurement.kind) not in (Kind.REAL, Kind.SIMULATED):
            raise FileError(
                path, f"trial {record.trial or '?'}: is {kind.value}, and a study holds what was measured for real; leave it out"
            )
        yield Found(plan=plan, measurement=record.measurement, proposed_by=record.proposed_by or f"import:{path.name}")


def _from_cells(
    cells: Mapping[str, str], study_situation: Situation, deck: Deck, calibration: Calibration | None, source: str
) -> Found:
    """The candidate of a row, priced; settings without a cell have their default."""
    for name in cells:
        if name not in COLUMNS:
            do = "leave it out; strategist study export shows the columns that there are"
            raise InputError(f"column {name}", "is neither a setting nor a figure", did_you_mean(name, COLUMNS) or do)
    settings = dict(_setting(SETTINGS[name], text) for name, text in cells.items() if name in SETTINGS)
    candidate = with_settings(Candidate(layout=Layout(), knobs=Knobs()), settings)
    plan = price_candidate(study_situation, candidate, deck=deck, calibration=calibration)
    return Found(plan=plan, measurement=_measurement(cells, plan), proposed_by=cells.get("proposed_by", source))


def _measurement(cells: Mapping[str, str], plan: Plan) -> Measurement:
    figures: dict[str, Any] = {
        name: _number(name, cells[name]) for name in (*flat_table.FIGURES, "peak_memory_bytes", "steps_measured") if name in cells
    }
    word = cells.get("outcome", Outcome.OK.value)
    if word not in {outcome.value for outcome in Outcome}:
        raise not_among(f"outcome {word}", word, (outcome.value for outcome in Outcome))
    outcome, tokens = Outcome(word), plan.workload.tokens_per_step
    seconds = figures.get("step_seconds") or (tokens / figures["tokens_per_second"] if "tokens_per_second" in figures else None)
    if outcome is Outcome.OK and seconds is None:
        raise InputError("step_seconds", "is missing, and tokens_per_second too", "give one of them, or an outcome such as oom")
    if seconds is not None:
        figures |= {"step_seconds": seconds, "tokens_per_second": figures.get("tokens_per_second", tokens / seconds)}
    peak, steps = figures.pop("peak_memory_bytes", None), figures.pop("steps_measured", 0)
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=outcome, evidence=Evidence(message=cells.get("message", "")),
        peak_memory_bytes=() if peak is None else (int(peak),), steps_measured=int(steps), **figures,
    )  # fmt: skip


def _setting(name: str, text: str) -> tuple[str, KnobValue]:
    """A setting by its bare name. ``4.0`` is read as 4: pandas writes integers as floats if the column has a missing value."""
    try:
        return parse_fix(f"{name}={re.sub(r'(?<=[0-9])[.]0$', '', text)}")
    except InputError as error:
        raise InputError(error.value.removeprefix("--fix "), error.law, error.do) from None


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    ratio = name.endswith("_ratio")  # a ratio may be 0
    if not math.isfinite(number) or number < 0 or (number == 0 and not ratio):
        raise InputError(f"{name} {text}", "a positive number is needed", "correct the cell, or leave it empty")
    return number


def finished_rows(found: Sequence[Found]) -> Iterator[TrialRow]:
    """Each as a trial that was run in one attempt and ended now. Repeats of a candidate are numbered in their order."""
    now, repeats = time.time(), Counter[str]()
    for item in found:
        key = item.plan.candidate.key
        if item.proposed_by == REPEAT:
            repeats[key] += 1
            key = repeat_key(key, repeats[key])
        attempt = AttemptRow(
            trial=0, attempt=1, owner=owner(), started=now - (item.measurement.wall_seconds or 0.0), ended=now,
            outcome=item.measurement.outcome, measurement_json=codec.one_line(item.measurement),
        )  # fmt: skip
        yield TrialRow(
            number=0, key=key, plan_json=codec.one_line(item.plan), proposed_by=item.proposed_by,
            state=TrialState.FINISHED, attempt=1, attempts=(attempt,),
        )  # fmt: skip


FACTS = ("request", "kind", "situation", "program", "goals")
"""Facts that merged studies must share; a study that was never tuned has no goals."""


def merge(studies: Sequence[str | Path], into: Path, server: str = "") -> ImportResult:
    """Copies the trials of several studies of one request into another study.

    If several studies tried a candidate, the first trial whose outcome depends on the plan is used. Unfinished trials are
    queued. The source studies are not changed, and the logs of trials are not copied.

    Raises:
        InputError: the studies have different requests; the message names the difference.
        FileError: a study cannot be read or written.
    """
    facts, rows = _facts_and_trials(studies)
    with Ledger.open(into, create=True, server=server) as ledger:
        if ledger.fact("request") is not None:
            _check_equal_facts(facts, _facts(ledger), str(studies[0]), str(into))
        for name, text in facts.items():
            if text is not None:
                ledger.set_fact(name, text)
        imported = sum([ledger.import_trial(row) for row in _deduplicated(rows)])
        ledger.export_jsonl(into.resolve() / HISTORY)
    return ImportResult(study=str(into.resolve()), imported=imported, duplicates=len(rows) - imported)


def _facts_and_trials(studies: Sequence[str | Path]) -> tuple[dict[str, str | None], list[TrialRow]]:
    facts: dict[str, str | None] = {}
    rows: list[TrialRow] = []
    for location in studies:
        with Ledger.open(location) as ledger:
            study_facts = _facts(ledger)
            if study_facts["request"] is None:
                raise FileError(ledger.name, "holds no request: no tuning has begun there; name another")
            _check_equal_facts(facts or study_facts, study_facts, str(studies[0]), str(location))
            facts = {name: facts.get(name) or text for name, text in study_facts.items()}
            rows += ledger.trials()
    return facts, rows


def _facts(ledger: Ledger) -> dict[str, str | None]:
    return {**{name: ledger.fact(name) for name in FACTS}, "kind": kind_of(ledger).value}


def _check_equal_facts(
    first_facts: Mapping[str, str | None], other_facts: Mapping[str, str | None], first: str, other: str
) -> None:
    subject, do = f"study {other}", "merge studies of one request only"
    if first_facts["request"] != other_facts["request"]:
        requests = [codec.loads(Request, facts["request"] or "") for facts in (first_facts, other_facts)]
        raise InputError(subject, f"is of another request than {first}: {', '.join(differences(*requests))}", do)
    if first_facts["kind"] != other_facts["kind"]:
        raise InputError(subject, f"holds {other_facts['kind']} trials, {first} {first_facts['kind']} ones", do)
    if first_facts["situation"] != other_facts["situation"]:
        raise InputError(subject, f"describes the model or the GPUs of that name otherwise than {first}", do)
    if first_facts["program"] != other_facts["program"]:
        raise InputError(subject, f"describes the program that is trained otherwise than {first}", do)
    if first_facts["goals"] and other_facts["goals"] and first_facts["goals"] != other_facts["goals"]:
        differing = ", ".join(differences(*(codec.loads(Goals, facts["goals"] or "") for facts in (first_facts, other_facts))))
        raise InputError(subject, f"has other goals than {first}: {differing}", "merge studies of the same goals only")


def _deduplicated(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """One trial per candidate, in the order in which they ended; open ones last."""

    def order(row: TrialRow) -> tuple[bool, float]:
        return row.outcome is None, (row.attempts[-1].ended or 0.0) if row.outcome and row.attempts else 0.0

    chosen: dict[str, TrialRow] = {}
    for row in sorted(rows, key=lambda row: (row.outcome not in EVIDENCE_OUTCOMES, *order(row))):
        chosen.setdefault(row.key, row if row.outcome else replace(row, state=TrialState.QUEUED, attempts=()))
    return sorted(chosen.values(), key=order)
