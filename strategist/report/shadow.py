"""Result of a shadow run, with measured and modelled parts separated."""

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.measurement import MODELLED_PARTS, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.report.breakdown import MIN_SHARE, NAMES, untimed_traffic_table
from strategist.report.setting_text import change_words, instant_words, percent
from strategist.report.text_blocks import bullets, columns, grouped, heading, section
from strategist.report.trial import OUTCOME_WORDS, comparison, evidence_report
from strategist.units import show_bytes, show_seconds


@grouped
def shadow_report(plan: Plan, measurement: Measurement, rank: int) -> Iterator[RenderableType]:
    """Outcome of the trial, its figures with the prediction, and the origin of each."""
    wall = f" in {show_seconds(measurement.wall_seconds)}" if measurement.wall_seconds else ""
    yield Text.assemble((f"plan {plan.id} on {plan.cluster.name}: {measurement.outcome.value}", "bold"), f"  {change_words(plan)}")
    yield Text(f"Rank {rank} of {plan.candidate.layout.world_size}, alone, {OUTCOME_WORDS[measurement.outcome]}{wall}.")
    if measurement.outcome is not Outcome.OK or measurement.time is None:
        yield from evidence_report(measurement)
        return
    modelled = sum(measurement.time.get(name, 0.0) for name in MODELLED_PARTS)
    step = measurement.step_seconds or 1.0
    detail = f"{measurement.steps_measured} steps after warm-up; {percent(modelled / step)} of the step is the model's"
    yield section(heading("Predicted and shadowed", detail), comparison(plan, measurement, "shadow"))
    yield section(heading("Time of a step"), _parts(plan, measurement.time))
    if measurement.traffic:
        yield section(
            heading("Collectives", "of this rank in a step: counted, not timed: no other rank runs"),
            untimed_traffic_table(measurement.traffic),
        )
    yield from _peak_memory(measurement)
    yield section(heading("Measured and modelled figures"), bullets(measurement.notes))


def _parts(plan: Plan, time: dict[str, float]) -> Table:
    predicted, step = asdict(plan.estimate.time), sum(time.values())
    table = columns("", "predicted", "shadow", "of step", "from", left=["", "from"])
    for name in dict.fromkeys([*predicted, *time]):
        seconds = time.get(name, 0.0)
        if max(seconds, predicted.get(name, 0.0)) >= MIN_SHARE * step:
            expected = show_seconds(predicted[name]) if name in predicted else "-"
            source = "the model" if name in MODELLED_PARTS else "measured"
            table.add_row(NAMES.get(name, name), expected, show_seconds(seconds), percent(seconds / step), source)
    return table


def _peak_memory(measurement: Measurement) -> Iterator[RenderableType]:
    for peak, instant in zip(measurement.peak_memory_bytes, measurement.peak_moments, strict=False):
        reserved = measurement.peak_reserved_bytes
        reserved_note = f"; the allocator reserved {show_bytes(max(reserved))}" if reserved else ""
        yield section(heading("Fullest"), Text(f"{show_bytes(peak)} allocated, in {instant_words(instant)}{reserved_note}"))
