"""Fits the shipped calibrations again, and judges each source, and each device, by fits to all others.

python benchmarks/refit.py FOLDER [PAGE]    writes profiles/calibrations.json; with a page, its tables, too
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from math import isclose
from multiprocessing import get_context
from pathlib import Path

from between import put

from strategist.accuracy.case import Case
from strategist.accuracy.case_columns import CaseColumns, columns_of
from strategist.accuracy.held_out_errors import (
    HeldOutErrors,
    device_of,
    file_of,
    held_out_errors,
    held_out_step_seconds,
    mean_error,
    source_of,
    step_ranges,
    with_intervals,
)
from strategist.accuracy.prediction_errors import price_cases, read_cases
from strategist.accuracy.refit import memory_spreads, native, refit
from strategist.accuracy.row import read_rows
from strategist.contract import codec
from strategist.cost.fit import STACK_FACTORS
from strategist.cost.shipped_calibrations import FittedTo, Shipped
from strategist.paths import data_dir
from strategist.profiles import history
from strategist.profiles.catalog import profile_stems
from strategist.profiles.hardware import load_device
from strategist.profiles.history import Record
from strategist.report.reference.markdown import table

SOURCE = "published rows (profiles/measurements/published), by benchmarks/refit.py"
TITLES = ("timed rows", "median error", "rule: 40 % MFU", "in sample", "bias", "in range", "memory rows", "memory error")
ERRORS = ("error", "rule_error", "seen_error")


def main() -> None:
    """Fits, judges, writes and prints."""
    cases, _ = read_cases(read_rows(Path(sys.argv[1])))
    columns = columns_of(cases)
    fits = refit(columns)
    fits = (*fits, native(fits, _trials()))
    for item in fits:
        print(f"{item.stack:<22}{item.rows:>5} rows, {item.noise:.1%} noise{_at_limit(item)}", flush=True)
    groups: tuple[Callable[[Case], str], ...] = (source_of, device_of)
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork"), initializer=_share, initargs=(columns, fits)) as pool:
        seconds = [_left_out(pool, cases, group) for group in groups]
    seen = price_cases(cases, Shipped(source=SOURCE, fits=fits))
    judged = [[replace(item, step_seconds=own[at]) for at, item in enumerate(seen)] for own in seconds]
    found = Shipped(source=SOURCE, fits=fits, memory_spreads=memory_spreads(cases), step_ranges=step_ranges(judged[0]))
    codec.save(found, data_dir("profiles") / "calibrations.json")
    for name, own, group in zip(("source", "device"), judged, (file_of, device_of), strict=True):
        text = _table(name, held_out_errors(with_intervals(own, found), seen, group))
        print(f"\n{text}")
        if len(sys.argv) > 2:
            put(Path(sys.argv[2]), f"unseen {name}s", text, "refit")


def _trials() -> list[Record]:
    """Of the native back end on GPUs, as ``benchmarks/gpu_day.py absorb`` keeps them, by today's profiles of devices."""
    paths = {stem: data_dir("profiles") / "measurements" / f"{stem}.jsonl" for stem in profile_stems("hardware")}
    return [_today(record, stem) for stem, path in paths.items() if path.exists() for record in history.read(path).records]


def _today(record: Record, stem: str) -> Record:
    plan = record.plan
    return replace(record, plan=replace(plan, cluster=replace(plan.cluster, device=load_device(stem)[0])))


_shared: list[tuple[CaseColumns, Sequence[FittedTo]]] = []


def _share(columns: CaseColumns, fits: Sequence[FittedTo]) -> None:
    """Keeps what all fits of a process need."""
    _shared.append((columns, fits))


def _left_out(pool: Executor, cases: Sequence[Case], group: Callable[[Case], str]) -> dict[int, float]:
    """Seconds of all rows' steps, each group's by fits to the others; groups on all processors."""
    names = sorted({group(case) for case in cases})
    return {at: seconds for own in pool.map(partial(_without, group), names) for at, seconds in own.items()}


def _without(group: Callable[[Case], str], name: str) -> dict[int, float]:
    [(columns, fits)] = _shared
    return held_out_step_seconds(columns, group, fits, name)


def _table(name: str, found: Sequence[HeldOutErrors]) -> str:
    """A row a group, and the means of those with 8 timed rows (5 of memory)."""
    rows = [
        (
            item.name,
            f"{item.timed_rows:,}",
            *(_percent(getattr(item, error)) for error in ERRORS),
            _percent(item.bias, "+"),
            _percent(item.covered),
            f"{item.memory_rows:,}",
            _percent(item.memory_error),
        )
        for item in found
    ]
    means = [_percent(mean_error(found, error)) for error in ERRORS]
    covered = _percent(mean_error(found, "covered"))
    rows.append(("**mean**", "", *means, "", covered, "", _percent(mean_error(found, "memory_error", min_rows=5))))
    return table((f"{name}, left out", *TITLES), rows)


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1%}"


def _at_limit(item: FittedTo) -> str:
    """Which factors end at a limit: there some structure is missing."""
    ends = [
        name
        for name, factor in STACK_FACTORS.items()
        for limit in (factor.minimum, factor.maximum)
        if limit not in (0.0, 1.0) and isclose(getattr(item.calibration, name), limit, rel_tol=1e-3)
    ]
    return f"; at a limit: {', '.join(ends)}" if ends else ""


if __name__ == "__main__":
    main()
