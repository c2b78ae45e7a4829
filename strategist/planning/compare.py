"""Compares two plans."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from strategist.contract.comparison import Comparison, Difference, Figure
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, full_name, value_of

FIGURES = (
    "step_seconds", "tokens_per_second", "mfu", "peak_memory_bytes", "capacity_bytes", "fit_confidence",
    "host_memory_bytes_per_node", "comm_ratio", "exposed_comm_ratio", "price_per_step", "energy_joules_per_step",
)  # fmt: skip
"""Figures of the estimate, most important first."""


def compared(first: Plan, second: Plan) -> Comparison:
    """Differences of two plans in settings and reasons, and the predictions for both."""
    return Comparison(
        first=first.id,
        second=second.id,
        situation=tuple(_differences(_situation(first), _situation(second))),
        settings=tuple(_differences(_settings(first), _settings(second))),
        figures=tuple(_figures(first.estimate, second.estimate, FIGURES)),
        memory=tuple(_figures(first.estimate.memory, second.estimate.memory, _names(first.estimate.memory))),
        time=tuple(_figures(first.estimate.time, second.estimate.time, _names(first.estimate.time))),
        cards=tuple(_differences(_reasons(first), _reasons(second))),
    )


def _situation(plan: Plan) -> dict[str, KnobValue]:
    workload = {f"workload.{name}": value for name, value in asdict(plan.workload).items()}
    return {"model": plan.model.name, "cluster": plan.cluster.name, **workload}


def _settings(plan: Plan) -> dict[str, KnobValue]:
    """Settings that have an effect in the plan."""
    return {full_name(name): value_of(plan.candidate, name) for name in SETTING_NAMES if plan.matters(name)}


def _reasons(plan: Plan) -> dict[str, KnobValue]:
    return {f"{reason.card} {reason.policy}": reason.text for reason in plan.reasons}


def _differences(first: dict[str, KnobValue], second: dict[str, KnobValue]) -> Iterator[Difference]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield Difference(name=name, first=first.get(name), second=second.get(name))


def _figures(first: Any, second: Any, names: Sequence[str]) -> Iterator[Figure]:
    """Figures that at least one of the plans has."""
    for name in names:
        found = Figure(name=name, first=getattr(first, name), second=getattr(second, name))
        if found.first or found.second:
            yield found


def _names(parts: Any) -> list[str]:
    return [field.name for field in fields(parts)]
