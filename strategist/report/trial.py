"""A measurement beside its prediction."""

from collections.abc import Collection, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.measurement import GLOO_NOTE, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.report.breakdown import collectives, peak_memory_section, time_report
from strategist.report.setting_text import change_words, counted, percent, tokens
from strategist.report.text_blocks import columns, heading, section, selected_blocks
from strategist.units import show_bytes, show_seconds

OUTCOME_WORDS = {
    Outcome.OK: "ran to its end",
    Outcome.OOM: "ran out of memory",
    Outcome.TIMEOUT: "made no progress within its deadline and was ended",
    Outcome.NAN: "reached a loss that is not a number",
    Outcome.CRASH: "crashed",
    Outcome.REFUSED: "was refused by the back end",
    Outcome.PRUNED: "was ended early, since it could not become the best",
    Outcome.BAD_MEASUREMENT: "ended with figures that cannot be right",
    Outcome.INFRASTRUCTURE: "could not be run by this machine; that is no evidence about the plan",
    Outcome.LOST: "was lost: the process that ran it is gone",
    Outcome.CANCELLED: "was cancelled",
}


def trial_report(plan: Plan, measurement: Measurement, sections: Collection[str] = ()) -> Group:
    """Report of a trial: its outcome, and measured figures compared with the prediction, or the evidence of its failure.

    sections: names of the sections to show for a successful trial; empty for the default ones.
    """
    return Group(*_head(plan, measurement), *_blocks(plan, measurement, sections))


def _head(plan: Plan, measurement: Measurement) -> Iterator[RenderableType]:
    wall = f" in {show_seconds(measurement.wall_seconds)}" if measurement.wall_seconds else ""
    loss = f"; loss {measurement.losses[0]:.4g} -> {measurement.losses[-1]:.4g}" if measurement.losses else ""
    sentence = f"The trial {OUTCOME_WORDS[measurement.outcome]}{wall}{loss}."
    yield Text.assemble((f"plan {plan.id} on {plan.cluster.name}: {measurement.outcome.value}", "bold"), f"  {change_words(plan)}")
    yield Text(sentence)


def _blocks(plan: Plan, measurement: Measurement, sections: Collection[str]) -> Iterator[RenderableType]:
    if measurement.outcome is Outcome.OK:
        yield from selected_blocks(SECTIONS, sections or SCREEN, plan, measurement)
        on_gloo = plan.cluster.device.kind == "cpu" and measurement.comm_ratio is not None
        for note in dict.fromkeys((*measurement.notes, *([GLOO_NOTE] if on_gloo else []))):
            yield Text(f"\n{note}", "dim")
    else:
        yield from evidence_report(measurement)


def _measured(plan: Plan, measurement: Measurement) -> Iterator[RenderableType]:
    spread = measurement.step_seconds_spread
    detail = f"{counted(measurement.steps_measured, 'step')} after warm-up" + (
        f", spread {percent(spread)}" if spread is not None else ""
    )
    yield section(heading("Predicted and measured", detail), comparison(plan, measurement))


SECTIONS = {"measured": _measured, "time": time_report, "memory": peak_memory_section, "collectives": collectives}
"""Function of each section of the report."""

SCREEN = ("measured", "time", "memory")


def comparison(plan: Plan, measurement: Measurement, source: str = "measured") -> Table:
    """Predicted and measured values (``source`` names the latter), and their ratio."""
    return columns(*COMPARED[:2], source, COMPARED[-1], rows=comparison_rows(plan, measurement), left=[""])


COMPARED = ("", "predicted", "measured", "ratio")


def comparison_rows(plan: Plan, measurement: Measurement) -> Iterator[tuple[str, str, str, str]]:
    """Rows of a comparison, with the columns of COMPARED."""
    estimate, peaks, reserved = plan.estimate, measurement.peak_memory_bytes, measurement.peak_reserved_bytes
    reserved_row = (
        [("peak memory reserved", estimate.peak_memory_bytes, max(reserved), show_bytes)] if reserved and not peaks else []
    )
    for name, predicted, measured, show in (
        ("step time", estimate.step_seconds, measurement.step_seconds, show_seconds),
        ("tokens/s", estimate.tokens_per_second, measurement.tokens_per_second, tokens),
        ("MFU", estimate.mfu, measurement.mfu, percent),
        ("peak memory allocated", estimate.memory.allocated, max(peaks) if peaks else None, show_bytes),
        *reserved_row,
        ("comm ratio", estimate.comm_ratio, measurement.comm_ratio, percent),
        ("exposed comm ratio", estimate.exposed_comm_ratio, measurement.exposed_comm_ratio, percent),
    ):
        ratio = f"{measured / predicted:.2f}" if measured is not None and predicted > 0 else "-"
        yield name, show(predicted), "-" if measured is None else show(measured), ratio


def evidence_report(measurement: Measurement) -> Iterator[RenderableType]:
    """Evidence of why a trial failed."""
    evidence = measurement.evidence
    origin = ", ".join(
        [
            *([f"rank {evidence.rank}"] if evidence.rank is not None else []),
            *([f"phase {evidence.phase}"] if evidence.phase else []),
        ]
    )
    yield section(heading("Evidence", origin), Text(evidence.message or "none was left"))
    if evidence.log_tail:
        yield section(heading("Last lines of the log"), Text("\n".join(evidence.log_tail.splitlines()[-12:]), "dim"))
