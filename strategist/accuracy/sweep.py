"""Sweeps: published runs that differ only in layout, priced without fitting to any of them."""

import statistics
from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from strategist.accuracy.case import Case
from strategist.accuracy.case_observation import observation
from strategist.accuracy.grouping import grouped
from strategist.accuracy.refit import common_factors, stack_factors
from strategist.contract.estimate import TimeParts
from strategist.cost.calibration import Calibration
from strategist.cost.observation import tables
from strategist.cost.shipped_calibrations import shipped
from strategist.frozen import frozen

Floats = NDArray[np.float64]

MIN_ROWS = 20
"""Minimum number of rows of a sweep that is searched."""


@frozen
class Sweep:
    """A sweep, with one element per candidate, best predicted first.

    rows: number of published rows.
    step_seconds: median measured seconds; infinite if all runs failed.
    memory_ratio: predicted peak memory over the memory that a plan may use.
    part_seconds: predicted seconds by part: candidates x parts.
    """

    name: str
    rows: int
    cases: tuple[Case, ...]
    step_seconds: Floats
    predicted_seconds: Floats
    memory_ratio: Floats
    part_seconds: Floats

    @property
    def devices(self) -> int:
        return self.cases[0].cluster.devices


def sweeps_by_name(cases: Sequence[Case], min_rows: int = MIN_ROWS) -> dict[str, list[Case]]:
    """Cases of each sweep by its name; sweeps have at least ``min_rows`` rows that ran or failed, of which one ran."""
    groups = grouped((case for case in cases if case.step_seconds or case.oom), lambda case: case.sweep)
    large_sweeps = [
        sweep_cases
        for sweep_cases in groups.values()
        if len(sweep_cases) >= min_rows and any(case.step_seconds for case in sweep_cases)
    ]
    return {_name(sweep_cases[0]): sweep_cases for sweep_cases in large_sweeps}


def common_without(cases: Sequence[Case], sweep_cases: Sequence[Case]) -> Calibration:
    """Factors of the sweep's stack family, fitted to all other sources, so that none of the sweep's rows is used. The search
    begins at the shipped factors.
    """
    example, start = sweep_cases[0], {item.stack: item.calibration for item in shipped().fits}
    return common_factors([case for case in cases if case.row.file != example.row.file], example.stack.family, start)


def priced_without(cases: Sequence[Case], sweep_cases: Sequence[Case], common: Calibration) -> Sweep:
    """The sweep, priced by factors fitted to all other rows of its stack, with ``common`` as the prior."""
    example = sweep_cases[0]
    other_sweeps = [case for case in cases if case.sweep != example.sweep and case.stack.name == example.stack.name]
    return priced_by(stack_factors(other_sweeps, common), sweep_cases)


def priced_by(calibration: Calibration, sweep_cases: Sequence[Case]) -> Sweep:
    """The sweep, priced by this calibration."""
    candidates = _distinct(sweep_cases)
    step_and_memory = np.zeros((len(candidates), 2))
    parts = np.zeros((len(candidates), len(TIME_PARTS)))
    for group in tables([observation(runs[0]) for runs in candidates]):
        priced, time, rows = group.priced(calibration), group.step(calibration).time, list(group.members)
        step_and_memory[rows] = np.stack([priced.step_seconds, priced.peak_memory_bytes / priced.room_bytes], axis=1)
        parts[rows] = np.stack([np.broadcast_to(time.get(name, 0.0), (len(rows),)) for name in TIME_PARTS], axis=1)
    order = np.argsort(step_and_memory[:, 0], kind="stable")
    return Sweep(
        name=_name(sweep_cases[0]),
        rows=len(sweep_cases),
        cases=tuple(candidates[index][0] for index in order),
        step_seconds=np.array([_seconds(candidates[index]) for index in order]),
        predicted_seconds=step_and_memory[order, 0],
        memory_ratio=step_and_memory[order, 1],
        part_seconds=parts[order],
    )


TIME_PARTS = tuple(TimeParts.__dataclass_fields__)


def _distinct(sweep_cases: Sequence[Case]) -> list[list[Case]]:
    """Runs grouped by candidate."""
    return list(grouped(sweep_cases, lambda case: case.layout).values())


def _seconds(runs: Sequence[Case]) -> float:
    measured = [case.step_seconds for case in runs if case.step_seconds]
    return statistics.median(measured) if measured else inf


def _name(case: Case) -> str:
    workload = case.workload
    return f"{case.row.file}: {case.row.model}, {case.cluster.name}, {workload.global_batch} x {workload.seq_len} tokens"
