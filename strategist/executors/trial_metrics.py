"""Figures of a trial from the records of its ranks; impossible values are refused, never averaged."""

import statistics
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

from strategist.contract.layout import Layout
from strategist.contract.measurement import PLUMBING, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.step_breakdown import breakdown, shortest_transfer, waited

T = TypeVar("T")
FEWEST, STEADY = 6, 0.05
"""Minimum number of steps to tell warm-up steps from steady ones, and the share by which steady ones may differ."""

PARTS_TOLERANCE, CLOCKS_SECONDS = 0.05, 0.05
"""How far the parts of the profiled step may be from its length: a share of it, or the seconds that may pass between
two looks at the clocks on a crowded machine."""

SLACK = 1.01
"""The step is timed by one clock and its collectives by the profiler's; the last one may end a moment after the step."""


class Impossible(ValueError):  # noqa: N818 - a finding, not a fault
    """A figure that no run can have."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


def figures(plan: Plan, settings: TrialSettings, records: Sequence[RankRecord], wall_seconds: float) -> dict[str, Any]:
    """The figures of a Measurement by field name, from one good record per rank, in order.

    Step time is that of the slowest rank. Communication is the mean over the ranks, in the profiled step, whose length is the mean
    as well: with pipelines the ranks differ, and a maximum would mix the figures of several. MFU counts the FLOPs that the estimate
    counts, so prediction and measurement differ by the step time only.

    Raises:
        Impossible: a figure is missing, not positive, or larger than what contains it.
    """
    notes = tuple(chain(*(record.notes for record in records), [PLUMBING] if plan.cluster.device.kind == "cpu" else []))
    if settings.total_steps is not None and not any(record.step_seconds for record in records):  # it had ended when this began
        return {"notes": notes}
    for record in records:
        _check(record, settings, wall_seconds)
    slowest = max(records, key=lambda record: statistics.median(record.step_seconds))
    spoken = next((record for record in records if record.losses), records[0])
    return {
        **pace(plan, settings, slowest.step_seconds),
        "peak_memory_bytes": tuple(record.peak_memory_bytes for record in records),
        "losses": spoken.losses,
        "grad_norms": spoken.grad_norms,
        **_communication(records),
        **breakdown(plan.candidate.layout, records),
        "peak_reserved_bytes": _of_all(records, lambda record: record.peak_reserved_bytes),
        "peak_moments": _of_all(records, lambda record: record.peak_moment),
        "notes": notes,
        **_imbalance(plan.candidate.layout, records),
    }


def pace(plan: Plan, settings: TrialSettings, seconds: Sequence[float]) -> dict[str, Any]:
    """The figures of steps that took so many ``seconds``, of which the first ones may still have been warming up."""
    warming, estimate = warming_up(seconds), plan.estimate
    steady = seconds[warming:]
    step_seconds = statistics.median(steady)
    return {
        "step_seconds": step_seconds,
        "step_seconds_spread": spread(steady),
        "steps_measured": len(steady),
        "warmup_steps": settings.warmup_steps + warming,
        "tokens_per_second": plan.workload.tokens_per_step / step_seconds,
        "mfu": estimate.mfu * estimate.step_seconds / step_seconds if estimate.step_seconds > 0 else None,
    }


def _communication(records: Sequence[RankRecord]) -> dict[str, Any]:
    step = _mean(records, lambda record: record.profiled_step_seconds)
    total = _mean(records, lambda record: record.communication_seconds)
    exposed = _mean(records, lambda record: record.exposed_communication_seconds)
    transfer = shortest_transfer(records)
    bubble = _mean(records, lambda record: waited(record, transfer))
    return {
        "communication_seconds": total,
        "exposed_communication_seconds": exposed,
        "comm_ratio": None if total is None or step is None else total / step,
        "exposed_comm_ratio": None if exposed is None or step is None else exposed / step,
        "exposed_comm_ratio_by_axis": _by_axis(records, step),
        "bubble_ratio": None if bubble is None or step is None else bubble / step,
    }


def _by_axis(records: Sequence[RankRecord], step: float | None) -> dict[str, float] | None:
    found = [record.exposed_seconds_by_axis for record in records if record.exposed_seconds_by_axis is not None]
    if step is None or len(found) < len(records):
        return None
    return {axis: statistics.fmean(by.get(axis, 0.0) for by in found) / step for axis in dict.fromkeys(chain(*found))}


def _imbalance(layout: Layout, records: Sequence[RankRecord]) -> dict[str, float | None]:
    """How much longer the slowest computes than the median does, among the ranks of a stage and among the stages."""
    stages: dict[int, list[float]] = {}
    for record in records:
        if record.compute_seconds is None:
            return {"rank_imbalance": None, "stage_imbalance": None}
        stages.setdefault(layout.stage_of(record.rank), []).append(record.compute_seconds)
    return {
        "rank_imbalance": max(map(_excess, stages.values())),
        "stage_imbalance": _excess([statistics.fmean(seconds) for seconds in stages.values()]),
    }


def _excess(seconds: Sequence[float]) -> float:
    """The longest over the median, minus 1; 0 where no rank computed."""
    median = statistics.median(seconds)
    return max(seconds) / median - 1 if median > 0 else 0.0


def _mean(records: Sequence[RankRecord], figure: Callable[[RankRecord], float | None]) -> float | None:
    values = [value for record in records if (value := figure(record)) is not None]
    return statistics.fmean(values) if len(values) == len(records) else None


def warming_up(seconds: Sequence[float]) -> int:
    """How many of the first steps are not yet like those of the second half: longer than their median by more than three of their
    median deviations and ``STEADY`` of it; at most half of the steps, and none of fewer than ``FEWEST``."""
    half = len(seconds) // 2
    if len(seconds) < FEWEST:
        return 0
    later = seconds[half:]
    median = statistics.median(later)
    deviation = statistics.median(abs(step - median) for step in later)
    most = median + max(3 * deviation, STEADY * median)
    return next((index for index, step in enumerate(seconds[:half]) if step <= most), half)


def _of_all(records: Sequence[RankRecord], figure: Callable[[RankRecord], T | None]) -> tuple[T, ...]:
    """The figure of each rank; nothing where one has none."""
    found = tuple(value for record in records if (value := figure(record)) is not None)
    return found if len(found) == len(records) else ()


def spread(seconds: Sequence[float]) -> float | None:
    """(90th - 10th percentile) / median; None for fewer than two steps."""
    if len(seconds) < 2:
        return None
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return (tenths[8] - tenths[0]) / statistics.median(seconds)


def _check(record: RankRecord, settings: TrialSettings, wall_seconds: float) -> None:
    def demand(law: bool, message: str) -> None:
        if not law:
            raise Impossible(record.rank, f"rank {record.rank}: {message}")

    steps = record.step_seconds
    wanted = settings.steps if settings.total_steps is None else max(1, len(steps))  # of a training, by where it began
    demand(len(steps) == wanted and bool(steps), f"{len(steps)} steps were timed, not {wanted}")
    demand(min(steps, default=0.0) > 0, f"a step of {min(steps, default=0.0)} s is impossible")
    demand(sum(steps) <= wall_seconds, f"its steps add up to {sum(steps):.3g} s, the whole trial took {wall_seconds:.3g} s")
    demand((record.peak_memory_bytes or 0) > 0, f"a peak memory of {record.peak_memory_bytes} bytes is impossible")
    profiled, total, exposed = (
        record.profiled_step_seconds, record.communication_seconds, record.exposed_communication_seconds,
    )  # fmt: skip
    demand(profiled is None or profiled > 0, f"a profiled step of {profiled} s is impossible")
    demand(
        total is None or 0 <= total <= SLACK * (profiled or 0.0), f"{total} s of communication do not fit in a step of {profiled} s"
    )
    demand(exposed is None or 0 <= exposed <= (total or 0.0), f"{exposed} s of exposed communication do not fit in {total} s of it")
    parts = sum((record.time or {}).values())
    demand(
        record.time is None or abs(parts - (profiled or 0.0)) <= max(PARTS_TOLERANCE * (profiled or 0.0), CLOCKS_SECONDS),
        f"its parts add up to {parts:.4g} s, the profiled step took {profiled} s",
    )
    waits = None if record.pipeline_waits is None else sum(record.pipeline_waits)
    alone = sum((record.exposed_seconds_by_axis or {}).values())
    demand(0 <= alone <= SLACK * (exposed or 0.0), f"{alone} s of exposed communication by axis do not fit in {exposed} s of it")
    for what, seconds in (("computation", record.compute_seconds), ("waiting", waits)):
        demand(
            seconds is None or 0 <= seconds <= SLACK * (profiled or 0.0),
            f"{seconds} s of {what} do not fit in a step of {profiled} s",
        )
