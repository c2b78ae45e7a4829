"""Metrics of a trial from the records of its ranks; impossible values raise an error instead of being averaged."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from strategist.contract.layout import Layout
from strategist.contract.measurement import GLOO_NOTE, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.step_breakdown import breakdown, shortest_transfer, waited

T = TypeVar("T")
MIN_STEPS, STEADY_SHARE = 6, 0.05
"""Minimum number of steps to tell warm-up steps from steady ones, and the share by which steady ones may differ."""

PARTS_TOLERANCE, CLOCKS_SECONDS = 0.05, 0.05
"""Tolerated difference between the sum of the parts and the length of the profiled step: a share of it, or the seconds that may
pass between two clock readings on a loaded machine.
"""

CLOCK_TOLERANCE = 1.01
"""The step is timed by one clock and its collectives by the profiler's; the last collective may end slightly after the step."""


class Impossible(ValueError):  # noqa: N818 - a finding, not a fault
    """A value that no run can have."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


def figures(plan: Plan, settings: TrialSettings, records: Sequence[RankRecord], wall_seconds: float) -> dict[str, Any]:
    """Fields of a Measurement by name, from one complete record per rank, in order.

    Step time is that of the slowest rank. Communication and its profiled step are means over the ranks: pipeline ranks differ,
    and a maximum would mix values of several ranks. MFU uses the FLOPs of the estimate, so prediction and measurement differ by
    the step time only.

    Raises:
        Impossible: a value is missing, not positive, or larger than what contains it.
    """
    notes = tuple(chain(*(record.notes for record in records), [GLOO_NOTE] if plan.cluster.device.kind == "cpu" else []))
    if settings.total_steps is not None and not any(record.step_seconds for record in records):  # the training was already complete
        return {"notes": notes}
    for record in records:
        for law, message in chain(_step_laws(record, settings, wall_seconds), _profile_laws(record)):
            if not law:
                raise Impossible(record.rank, f"rank {record.rank}: {message}")
    slowest = max(records, key=lambda record: statistics.median(record.step_seconds))
    with_losses = next((record for record in records if record.losses), records[0])
    return {
        **step_time_fields(plan, settings, slowest.step_seconds),
        "peak_memory_bytes": tuple(record.peak_memory_bytes for record in records),
        "losses": with_losses.losses,
        "grad_norms": with_losses.grad_norms,
        **_communication(records),
        **breakdown(plan.candidate.layout, records),
        "peak_reserved_bytes": _of_all(records, lambda record: record.peak_reserved_bytes),
        "peak_moments": _of_all(records, lambda record: record.peak_moment),
        "notes": notes,
        **_imbalance(plan.candidate.layout, records),
    }


def step_time_fields(plan: Plan, settings: TrialSettings, seconds: Sequence[float]) -> dict[str, Any]:
    """Fields of a Measurement from the seconds of each step; the first steps may still be warm-up."""
    warming, estimate = warmup_step_count(seconds), plan.estimate
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
    return {
        axis: statistics.fmean(seconds_by_axis.get(axis, 0.0) for seconds_by_axis in found) / step
        for axis in dict.fromkeys(chain(*found))
    }


def _imbalance(layout: Layout, records: Sequence[RankRecord]) -> dict[str, float | None]:
    """Share by which the slowest rank computes longer than the median, among the ranks of a stage and among the stages."""
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
    """Maximum over median, minus 1; 0 if the median is 0."""
    median = statistics.median(seconds)
    return max(seconds) / median - 1 if median > 0 else 0.0


def _mean(records: Sequence[RankRecord], figure: Callable[[RankRecord], float | None]) -> float | None:
    values = [value for record in records if (value := figure(record)) is not None]
    return statistics.fmean(values) if len(values) == len(records) else None


def warmup_step_count(seconds: Sequence[float]) -> int:
    """Number of first steps that are slower than the steady steps of the second half.

    A step is slower if it exceeds their median by more than three median deviations and by more than the share ``STEADY_SHARE``. At
    most half of the steps; 0 if there are fewer than ``MIN_STEPS``.
    """
    half_count = len(seconds) // 2
    if len(seconds) < MIN_STEPS:
        return 0
    later = seconds[half_count:]
    median = statistics.median(later)
    deviation = statistics.median(abs(step - median) for step in later)
    max_steady_seconds = median + max(3 * deviation, STEADY_SHARE * median)
    return next((index for index, step in enumerate(seconds[:half_count]) if step <= max_steady_seconds), half_count)


def _of_all(records: Sequence[RankRecord], figure: Callable[[RankRecord], T | None]) -> tuple[T, ...]:
    """The value of each rank; empty if a rank has none."""
    found = tuple(value for record in records if (value := figure(record)) is not None)
    return found if len(found) == len(records) else ()


def spread(seconds: Sequence[float]) -> float | None:
    """(90th - 10th percentile) / median; None for fewer than two steps."""
    if len(seconds) < 2:
        return None
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return (tenths[8] - tenths[0]) / statistics.median(seconds)


def _step_laws(record: RankRecord, settings: TrialSettings, wall_seconds: float) -> Iterator[tuple[bool, str]]:
    """Whether times and memory are possible, each with the message if they are not. Comparisons with NaN are false."""
    steps = record.step_seconds
    # a training may have resumed near its end
    expected_steps = settings.steps if settings.total_steps is None else max(1, len(steps))
    yield (len(steps) == expected_steps and bool(steps), f"{len(steps)} steps were timed, not {expected_steps}")
    yield (min(steps, default=0.0) > 0, f"a step of {min(steps, default=0.0)} s is impossible")
    yield (sum(steps) <= wall_seconds, f"its steps add up to {sum(steps):.3g} s, the whole trial took {wall_seconds:.3g} s")
    yield ((record.peak_memory_bytes or 0) > 0, f"a peak memory of {record.peak_memory_bytes} bytes is impossible")


def _profile_laws(record: RankRecord) -> Iterator[tuple[bool, str]]:
    """Whether the figures of the profiled step are possible, each with the message if they are not."""
    profiled, total, exposed = (
        record.profiled_step_seconds, record.communication_seconds, record.exposed_communication_seconds,
    )  # fmt: skip
    yield (profiled is None or profiled > 0, f"a profiled step of {profiled} s is impossible")
    yield (
        total is None or 0 <= total <= CLOCK_TOLERANCE * (profiled or 0.0),
        f"{total} s of communication do not fit in a step of {profiled} s",
    )
    yield (exposed is None or 0 <= exposed <= (total or 0.0), f"{exposed} s of exposed communication do not fit in {total} s of it")
    parts = sum((record.time or {}).values())
    yield (
        record.time is None or abs(parts - (profiled or 0.0)) <= max(PARTS_TOLERANCE * (profiled or 0.0), CLOCKS_SECONDS),
        f"its parts add up to {parts:.4g} s, the profiled step took {profiled} s",
    )
    waiting = None if record.pipeline_waits is None else sum(record.pipeline_waits)
    exposed_by_axis = sum((record.exposed_seconds_by_axis or {}).values())
    yield (
        0 <= exposed_by_axis <= CLOCK_TOLERANCE * (exposed or 0.0),
        f"{exposed_by_axis} s of exposed communication by axis do not fit in {exposed} s of it",
    )
    for subject, seconds in (("computation", record.compute_seconds), ("waiting", waiting)):
        yield (
            seconds is None or 0 <= seconds <= CLOCK_TOLERANCE * (profiled or 0.0),
            f"{seconds} s of {subject} do not fit in a step of {profiled} s",
        )
