"""Breakdown of a measured step beside its estimate: time by part, collectives, and peak memory."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import instant_words, percent
from strategist.report.text_blocks import columns, heading, section
from strategist.units import show_bytes, show_seconds

NAMES = {**PART_NAMES, "world_communication": "sums over all ranks", "data": "waiting for data", "other": "none of these"}
MIN_SHARE = 5e-4
"""Parts below this share of both steps are left out."""


def time_report(plan: Plan, measurement: Measurement) -> Iterator[RenderableType]:
    """Time of the profiled step by part, if it was measured."""
    step = measurement.profiled_step_seconds
    if measurement.time is not None and step is not None:
        length = f"the profiled step took {show_seconds(step)}, mean over the ranks"
        yield section(heading("Time of a step", length), parts_table(plan, measurement.time, step), *_bubbles(measurement))


def collectives(plan: Plan, measurement: Measurement) -> Iterator[RenderableType]:
    """Collectives of the profiled step by axis and kind."""
    if measurement.traffic:
        yield section(heading("Collectives", "of a rank, in a step"), traffic_table(measurement))


def parts_table(plan: Plan, time: dict[str, float], step: float) -> Table:
    """Estimated and measured time of each part, with its share of the step."""
    predicted, predicted_step = asdict(plan.estimate.time), plan.estimate.step_seconds
    table = columns("", "predicted", "share", "measured", "of step", left=[""])
    for name in dict.fromkeys([*predicted, *time]):
        expected, seconds = predicted.get(name, 0.0), time.get(name, 0.0)
        if max(expected / predicted_step if predicted_step else 0.0, seconds / step) >= MIN_SHARE:
            predicted_cells = (
                (show_seconds(expected), percent(expected / predicted_step)) if name in predicted and predicted_step else ("-", "-")
            )
            table.add_row(NAMES.get(name, name), *predicted_cells, show_seconds(seconds), percent(seconds / step))
    return table


def _bubbles(measurement: Measurement) -> Iterator[RenderableType]:
    if measurement.bubble_ratio_by_stage:
        shares = ", ".join(map(percent, measurement.bubble_ratio_by_stage))
        yield Text(f"bubble of each rank of the pipeline, first to last: {shares}")


def traffic_table(measurement: Measurement) -> Table:
    """Calls, bytes and seconds of each kind of collective along each axis."""
    table = columns("axis", "collective", "calls", "bytes", "time", "exposed", left=["axis", "collective"])
    for row in measurement.traffic:
        size = show_bytes(row.message_bytes) if row.calls else "-"
        table.add_row(
            row.axis, row.collective, f"{row.calls:.3g}" if row.calls else "-", size, show_seconds(row.seconds),
            show_seconds(row.exposed_seconds),
        )  # fmt: skip
    return table


def untimed_traffic_table(rows: Iterable[Traffic]) -> Table:
    """Calls and bytes of collectives without a measured time."""
    cells = ((row.axis, row.collective, f"{row.calls:,.0f}", show_bytes(row.message_bytes)) for row in rows)
    return columns("axis", "collective", "calls", "bytes", rows=cells, left=["axis", "collective"])


def peak_memory_section(plan: Plan, measurement: Measurement) -> Iterator[RenderableType]:
    """Peak memory of the fullest rank, with the moment of the peak."""
    peaks, instants = measurement.peak_memory_bytes, measurement.peak_moments
    if not peaks or len(instants) != len(peaks):
        return
    rank = max(range(len(peaks)), key=lambda index: peaks[index])
    reserved = measurement.peak_reserved_bytes
    reserved_note = f"; the allocator reserved {show_bytes(max(reserved))}" if reserved else ""
    yield Group(
        section(
            heading("Peak memory"),
            Text(f"rank {rank} with {show_bytes(peaks[rank])} allocated, in {instant_words(instants[rank])}{reserved_note}"),
        )
    )
