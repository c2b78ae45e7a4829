"""Fits the shipped calibrations again, and judges each source, and each device, by fits to all others.

python benchmarks/refit.py FOLDER [PAGE]    writes profiles/calibrations.json; with a page, its tables, too
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from math import isclose
from pathlib import Path

from between import put

from strategist.accuracy.case import Case
from strategist.accuracy.figures import Judged
from strategist.accuracy.leave_out import Unseen, device_of, file_of, left_out, mean_error, source_of, step_range, unseen
from strategist.accuracy.measure import judge, read_cases
from strategist.accuracy.refit import memory_spreads, refit
from strategist.accuracy.row import read_rows
from strategist.contract import codec
from strategist.cost.fit import OF_STACKS
from strategist.cost.shipped import FittedTo, Shipped
from strategist.paths import data_dir
from strategist.report.reference.markdown import table

SOURCE = "published rows (profiles/measurements/published), by benchmarks/refit.py"
TITLES = ("timed rows", "median error", "rule: 40 % MFU", "in sample", "bias", "in range", "memory rows", "memory error")
ERRORS = ("error", "rule_error", "seen_error")


def main() -> None:
    """Fits, judges, writes and prints."""
    cases, _ = read_cases(read_rows(Path(sys.argv[1])))
    fits = refit(cases)
    for item in fits:
        print(f"{item.stack:<22}{item.rows:>5} rows, {item.noise:.1%} noise{_at_limit(item)}", flush=True)
    judged = {name: _left_out(cases, group, fits) for name, group in (("source", source_of), ("device", device_of))}
    found = Shipped(source=SOURCE, fits=fits, memory_spreads=memory_spreads(cases), step_range=step_range(judged["source"]))
    codec.save(found, data_dir("profiles") / "calibrations.json")
    seen = judge(cases, found)
    for (name, own), group in zip(judged.items(), (file_of, device_of), strict=True):
        text = _table(name, unseen(_ranged(own, found), seen, group))
        print(f"\n{text}")
        if len(sys.argv) > 2:
            put(Path(sys.argv[2]), f"unseen {name}s", text, "refit")


def _left_out(cases: Sequence[Case], group: Callable[[Case], str], fits: Sequence[FittedTo]) -> list[Judged]:
    """All rows, each group by fits to the others; on all processors, since each takes half a minute."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        names = sorted({group(case) for case in cases})
        places = pool.map(partial(_predicted, cases, group, fits), names)
        found = {place: item for own in places for place, item in own}
    return [replace(found[place], case=case) for place, case in enumerate(cases)]


def _predicted(
    cases: Sequence[Case], group: Callable[[Case], str], fits: Sequence[FittedTo], name: str
) -> list[tuple[int, Judged]]:
    """The predictions of one group with the places of its rows."""
    places = [place for place, case in enumerate(cases) if group(case) == name]
    return list(zip(places, left_out(cases, group, fits, name), strict=True))


def _ranged(judged: Sequence[Judged], found: Shipped) -> list[Judged]:
    """With the range that is shipped."""
    low, high = found.step_range
    return [replace(item, interval=(low * item.step_seconds, high * item.step_seconds)) for item in judged]


def _table(name: str, found: Sequence[Unseen]) -> str:
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
    rows.append(("**mean**", "", *means, "", covered, "", _percent(mean_error(found, "memory_error", least_rows=5))))
    return table((f"{name}, left out", *TITLES), rows)


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1%}"


def _at_limit(item: FittedTo) -> str:
    """Which factors end at a limit: there some structure is missing."""
    ends = [
        name
        for name, factor in OF_STACKS.items()
        for limit in (factor.least, factor.most)
        if limit not in (0.0, 1.0) and isclose(getattr(item.calibration, name), limit, rel_tol=1e-3)
    ]
    return f"; at a limit: {', '.join(ends)}" if ends else ""


if __name__ == "__main__":
    main()
