"""Notes of an export: summary of the plan, predicted figures, and the reason for each setting."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import Layout
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, value_of
from strategist.units import show_bytes, show_seconds


def learning_rate_need(entry: str) -> str:
    """The line of an export's needs about the placeholder in ``entry``."""
    return f"learning rate: {entry} is the placeholder {LEARNING_RATE}"


def header_lines(plan: Plan) -> tuple[str, ...]:
    """Head of a file: the plan, its workload, and its predicted step time, throughput and memory."""
    estimate, workload = plan.estimate, plan.workload
    return (
        f"strategist plan {plan.id}: {plan.model.name} on {plan.cluster.name}",
        f"{workload.global_batch} sequences of {workload.seq_len} tokens a step, {workload.precision}, {workload.optimizer}",
        f"expected: {show_seconds(estimate.step_seconds)} a step, {estimate.tokens_per_second:,.0f} tokens/s, "
        f"{show_bytes(estimate.peak_memory_bytes)} of {show_bytes(estimate.capacity_bytes)} a device",
    )


def setting_notes(plan: Plan, reasons: Mapping[str, str], unstated: Collection[str] = ()) -> dict[str, str]:
    """A remark for each setting that a card decided or that is not at its default: the value in our terms, and the reason.

    unstated: settings that the system itself decides; they get no remark.
    """
    plain = Candidate(layout=Layout(), knobs=Knobs())
    values = {name: value_of(plan.candidate, name) for name in SETTING_NAMES if name not in unstated and plan.matters(name)}
    return {
        name: f"{name} {show_value(value)}" + (f": {reasons[name]}" if name in reasons else "")
        for name, value in values.items()
        if name in reasons or value != value_of(plain, name)
    }


def placed_notes(
    data: Mapping[str, Any], entries: Iterable[tuple[str, str]], notes: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Notes by the entry that they are written beside, and the others, which belong to the head of the file.

    entries: dotted names of entries, each with the setting that it states; those that ``data`` does not have are passed over.
    """
    stated = {entry: name for entry, name in entries if name in notes and _has(data, entry.split("."))}
    others = tuple(text for name, text in notes.items() if name not in stated.values())
    return {entry: notes[name] for entry, name in stated.items()}, others


def _has(data: Any, path: list[str]) -> bool:
    return not path or (isinstance(data, Mapping) and path[0] in data and _has(data[path[0]], path[1:]))
