"""Step breakdown: mean time of each part of a step over the ranks, the bubble of each stage, and the collectives."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from strategist.contract.estimate import TimeParts
from strategist.contract.layout import Layout
from strategist.contract.measurement import MEASURED_PARTS, RankRecord
from strategist.contract.rank_observation import Traffic

PARTS = (*(field.name for field in fields(TimeParts)), *MEASURED_PARTS)
"""All parts of a measured step, in the order of an estimate's parts."""

TOTALS = ("calls", "message_bytes", "seconds", "exposed_seconds")


def breakdown(layout: Layout, records: Sequence[RankRecord]) -> dict[str, Any]:
    """Fields of a Measurement that describe the profiled step."""
    steps = [record.profiled_step_seconds for record in records if record.profiled_step_seconds is not None]
    return {
        "profiled_step_seconds": statistics.fmean(steps) if len(steps) == len(records) else None,
        "time": _time(records),
        "bubble_ratio_by_stage": _bubbles(layout, records),
        "traffic": _traffic(records),
    }


def _time(records: Sequence[RankRecord]) -> dict[str, float] | None:
    """Seconds by part, mean over the ranks; None if a rank has none. The waits of a pipeline rank are split into bubble and
    transfers.
    """
    transfer = shortest_transfer(records)
    shared = [found for record in records if (found := _with_bubble(record, transfer)) is not None]
    if len(shared) < len(records):
        return None
    return {
        part: statistics.fmean(parts.get(part, 0.0) for parts in shared) for part in PARTS if any(part in parts for parts in shared)
    }


def _with_bubble(record: RankRecord, transfer_seconds: float) -> dict[str, float] | None:
    bubble = waited(record, transfer_seconds)
    if record.time is None or bubble is None or not record.pipeline_waits:
        return record.time
    waiting_parts = {"pp_communication", "world_communication"}
    waits = math.fsum(record.time.get(part, 0.0) for part in waiting_parts)
    parts = {part: seconds for part, seconds in record.time.items() if part not in waiting_parts}
    return {**parts, "bubble": min(bubble, waits), "pp_communication": max(waits - bubble, 0.0)}


def _bubbles(layout: Layout, records: Sequence[RankRecord]) -> tuple[float, ...]:
    """Share of the profiled step that the ranks of each stage waited, first stage to last; empty without a pipeline."""
    transfer = shortest_transfer(records)
    stages: dict[int, list[float]] = {}
    for record in records:
        bubble, step = waited(record, transfer), record.profiled_step_seconds
        if layout.pp == 1 or bubble is None or step is None:
            return ()
        stages.setdefault(layout.stage_of(record.rank), []).append(bubble / step)
    return tuple(statistics.fmean(stages[stage]) for stage in sorted(stages))


def _traffic(records: Sequence[RankRecord]) -> tuple[Traffic, ...]:
    """Traffic by axis and kind of collective, mean over all ranks; a rank without such a collective counts as zero."""
    rows: dict[tuple[str, str], list[Traffic]] = {}
    for record in records:
        for row in record.traffic:
            rows.setdefault((row.axis, row.collective), []).append(row)
    return tuple(
        Traffic(axis=axis, collective=name, **{total: sum(getattr(row, total) for row in found) / len(records) for total in TOTALS})
        for (axis, name), found in sorted(rows.items())
    )


def shortest_transfer(records: Sequence[RankRecord]) -> float:
    """Seconds of the shortest transfer between stages; 0 if there is none."""
    return min((seconds for record in records if (seconds := record.shortest_transfer_seconds) is not None), default=0.0)


def waited(record: RankRecord, transfer_seconds: float) -> float | None:
    """Seconds that a pipeline rank waited, without the time of its transfers; None if unknown."""
    if record.pipeline_waits is None:
        return None
    return math.fsum(max(0.0, seconds - transfer_seconds) for seconds in record.pipeline_waits)
