"""After a day on a GPU: the rows are kept, a calibration is fitted to them, and errors stand beside their targets."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu.case import Case, read_cases
from gpu.cases import PROBES

from strategist.cards.deck import load_deck
from strategist.contract import codec
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, RankRecord
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.errors import FileError
from strategist.executors.trial_metrics import Impossible, figures
from strategist.paths import data_dir
from strategist.planning import planner
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation

TARGETS = {"allocated": 0.03, "reserved": 0.06, "step": 0.10}
"""Largest relative error: memory against its simulation, a step against its calibrated price."""

Row = Mapping[str, Any]


def absorb(folder: Path, into: Path | None = None) -> None:
    """Prints a line a case and a line a target, and keeps rows and records of trials.

    Raises:
        FileError: the folder has no rows, or rows of cases that were not prepared in it.
    """
    rows = [row for path in sorted(folder.glob("*.jsonl")) for row in _lines(path)]
    if not rows:
        raise FileError(folder, "has no rows of first, grid or shadow; name the folder that the sessions wrote to")
    cases = {(case.session, case.name): case for case in read_cases(folder)}
    if unknown := [row["case"] for row in rows if (row["session"], row["case"]) not in cases]:
        raise FileError(folder, f"has a row of the case {unknown[0]} and no such case; put the rows beside the cases they are of")
    pairs = [(cases[row["session"], row["case"]], row) for row in rows]
    calibration = fit([record for case, row in pairs if (record := record_of(case, row))])
    report(pairs, calibration)
    keep(pairs, into or _place(pairs))
    codec.save(calibration, folder / "calibration.json")


def _lines(path: Path) -> Iterator[Row]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            print(f"{path}: a torn line is left out")


def record_of(case: Case, row: Row) -> Record | None:
    """The trial as a record of a history; None of what was no trial, or did not end by its own doing."""
    rank = rank_of(row)
    if case.plan is None or case.rank is not None or case.arguments or rank is None:
        return None
    common: dict[str, Any] = {"plan_id": case.plan.id, "kind": Kind.REAL, "versions": dict(rank.versions)}
    if rank.outcome is not Outcome.OK:
        evidence = Evidence(message=rank.message, rank=0, phase=rank.phase)
        return Record(plan=case.plan, measurement=Measurement(outcome=rank.outcome, evidence=evidence, **common))
    try:
        found = figures(case.plan, case.settings, [rank], row["seconds"])
    except Impossible as error:
        print(f"{case.name}: left out: {error}")
        return None
    return Record(plan=case.plan, measurement=Measurement(outcome=Outcome.OK, wall_seconds=row["seconds"], **common, **found))


def rank_of(row: Row) -> RankRecord | None:
    """What the rank of a trial or a shadow wrote."""
    measured = row.get("measured")
    if not measured or measured.get("type") != "RankRecord":
        return None
    return codec.loads(RankRecord, json.dumps(measured))


def report(pairs: Sequence[tuple[Case, Row]], calibration: Calibration) -> None:
    """A line a case, then the largest and the median error of each figure beside its target."""
    print(f"{'case':36}{'allocated':>11}{'reserved':>11}{'step':>11}{'as shipped':>12}")
    found: dict[str, list[float]] = {name: [] for name in TARGETS}
    for case, row in pairs:
        errors = errors_of(case, row, calibration)
        for name, values in found.items():
            values += [abs(errors[name])] if name in errors else []
        shown = "".join(f"{errors[name]:+11.1%}" if name in errors else f"{'':11}" for name in TARGETS)
        shipped = f"{errors['as shipped']:+12.1%}" if "as shipped" in errors else ""
        print(f"{case.name:36}{shown}{shipped}  {row['error'][:100]}".rstrip())
    for name, target in TARGETS.items():
        values = found[name]
        judged = f"median {statistics.median(values):.1%}, most {max(values):.1%} of {len(values)}" if values else "not measured"
        print(f"{name}: {judged}; target {target:.0%}")
    for case, row in pairs:
        if case.name in PROBES:
            fits = PROBES[case.name] > 1
            print(f"{case.name}: {row['error'] or 'ran'}; target: {'runs' if fits else 'ends out of memory'}")
        if case.name.startswith("beside ") and (row.get("measured") or {}).get("seconds"):
            ratio = statistics.median(by_hand / trainer for trainer, by_hand in row["measured"]["seconds"])
            print(f"{case.name}: its seconds over the plan's {ratio:.3f}; target 1.0 at least")


def errors_of(case: Case, row: Row, calibration: Calibration) -> dict[str, float]:
    """Relative errors of what a case that ended well showed: predicted over measured, minus 1."""
    rank, errors = rank_of(row), {}
    if case.plan is None or rank is None or rank.outcome is not Outcome.OK:
        return {}
    if case.simulated and rank.peak_memory_bytes:
        errors["allocated"] = case.simulated.peak_memory_bytes / rank.peak_memory_bytes - 1
    if case.simulated and case.simulated.peak_reserved_bytes and rank.peak_reserved_bytes:
        errors["reserved"] = case.simulated.peak_reserved_bytes / rank.peak_reserved_bytes - 1
    if case.rank is None and rank.step_seconds:
        seconds = statistics.median(rank.step_seconds)
        errors["as shipped"] = case.plan.estimate.step_seconds / seconds - 1
        errors["step"] = calibrated(case.plan, calibration) / seconds - 1
    return errors


def calibrated(plan: Plan, calibration: Calibration) -> float:
    """Seconds of a step by the fitted factors."""
    request = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload)
    priced_situation = Situation(request=request, model=plan.model, cluster=plan.cluster, notes=(), digest="")
    return planner.price_candidate(
        priced_situation, plan.candidate, deck=load_deck(), calibration=calibration
    ).estimate.step_seconds


def _place(pairs: Sequence[tuple[Case, Row]]) -> Path:
    plans = [case.plan for case, _ in pairs if case.plan is not None]
    name = plans[0].cluster.device.name.lower() if plans else "device"
    return data_dir("profiles") / "measurements" / f"{name}.jsonl"


def keep(pairs: Sequence[tuple[Case, Row]], target: Path) -> None:
    """Adds the trials to a history, and every row to ``rows`` beside it; rows that are there already are not added again."""
    file = target.parent / "rows" / target.name
    file.parent.mkdir(parents=True, exist_ok=True)
    there = set(file.read_text(encoding="utf-8").splitlines()) if file.exists() else set()
    new = [(case, row) for case, row in pairs if json.dumps(row) not in there]
    records = [record for case, row in new if (record := record_of(case, row))]
    for record in records:
        history.append(target, record.plan, replace(record.measurement, notes=("benchmarks/gpu_day.py",)))
    with file.open("a", encoding="utf-8") as rows:
        rows.writelines(f"{json.dumps(row)}\n" for _, row in new)
    print(f"{target}: {len(records)} trials added; {file}: {len(new)} rows added")
