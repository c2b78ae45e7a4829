"""Sweeps: published runs that differ only in layout, priced without fitting to any of them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from strategist.accuracy.case import Case
from strategist.accuracy.case_observation import observation
from strategist.accuracy.refit import common_factors, own_factors
from strategist.contract.estimate import TimeParts
from strategist.cost.calibration import Calibration
from strategist.cost.observation import tables
from strategist.cost.shipped_calibrations import shipped

Floats = NDArray[np.float64]

MIN_ROWS = 20
"""Minimum number of rows of a sweep that is searched."""


@dataclass(frozen=True, kw_only=True)
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


def grouped(cases: Sequence[Case], least: int = MIN_ROWS) -> dict[str, list[Case]]:
    """Cases of each sweep by its name; sweeps have at least ``least`` rows that ran or failed, of which one ran."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        if case.step_seconds or case.oom:
            groups.setdefault(case.sweep, []).append(case)
    large = [own for own in groups.values() if len(own) >= least and any(case.step_seconds for case in own)]
    return {_name(own[0]): own for own in large}


def common_without(cases: Sequence[Case], own: Sequence[Case]) -> Calibration:
    """Factors of the sweep's stack family, fitted to all other sources, so that none of the sweep's rows is used. The search
    begins at the shipped factors.
    """
    like, start = own[0], {item.stack: item.calibration for item in shipped().fits}
    return common_factors([case for case in cases if case.row.file != like.row.file], like.stack.family, start)


def priced_without(cases: Sequence[Case], own: Sequence[Case], common: Calibration) -> Sweep:
    """The sweep, priced by factors fitted to all other rows of its stack, with ``common`` as the prior."""
    like = own[0]
    others = [case for case in cases if case.sweep != like.sweep and case.stack.name == like.stack.name]
    return priced_by(own_factors(others, common), own)


def priced_by(calibration: Calibration, own: Sequence[Case]) -> Sweep:
    """The sweep, priced by this calibration."""
    candidates = _distinct(own)
    found = np.zeros((len(candidates), 2))
    parts = np.zeros((len(candidates), len(TIME_PARTS)))
    for group in tables([observation(runs[0]) for runs in candidates]):
        priced, time, at = group.priced(calibration), group.step(calibration).time, list(group.members)
        found[at] = np.stack([priced.step_seconds, priced.peak_memory_bytes / priced.room_bytes], axis=1)
        parts[at] = np.stack([np.broadcast_to(time.get(name, 0.0), (len(at),)) for name in TIME_PARTS], axis=1)
    order = np.argsort(found[:, 0], kind="stable")
    return Sweep(
        name=_name(own[0]),
        rows=len(own),
        cases=tuple(candidates[place][0] for place in order),
        step_seconds=np.array([_seconds(candidates[place]) for place in order]),
        predicted_seconds=found[order, 0],
        memory_ratio=found[order, 1],
        part_seconds=parts[order],
    )


TIME_PARTS = tuple(TimeParts.__dataclass_fields__)


def _distinct(own: Sequence[Case]) -> list[list[Case]]:
    """Runs grouped by candidate."""
    runs: dict[str, list[Case]] = {}
    for case in own:
        runs.setdefault(case.layout, []).append(case)
    return list(runs.values())


def _seconds(runs: Sequence[Case]) -> float:
    known = [case.step_seconds for case in runs if case.step_seconds]
    return statistics.median(known) if known else inf


def _name(case: Case) -> str:
    work = case.workload
    return f"{case.row.file}: {case.row.model}, {case.cluster.name}, {work.global_batch} x {work.seq_len} tokens"
