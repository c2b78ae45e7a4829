"""The study: Optuna, in memory, told what was tried and asked what to try next; the ledger is what remembers."""

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from strategist.contract.knobs import KnobValue
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.settings import settings_of
from strategist.search.sampler import OOM_RATIO, BestPredicted, memory_ratio
from strategist.search.settings import key

optuna.logging.set_verbosity(optuna.logging.WARNING)

SILENT = (Outcome.INFRASTRUCTURE, Outcome.LOST, Outcome.CANCELLED)
"""Outcomes that say nothing about the candidate."""

OVER = 0.01
"""An out-of-memory is a violation of at least this share of the device's memory, whatever was predicted or seen."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A candidate that has a trial. ``plan`` is priced by today's calibration; no measurement while the trial is open or lost."""

    plan: Plan
    measurement: Measurement | None = None


def propose(ranked: Sequence[Plan], tried: Sequence[Tried], objective: str = "throughput") -> Plan | None:
    """The plan out of ``ranked`` (best predicted first) to try next; None when all were tried."""
    known = {key(item.plan.candidate) for item in tried}
    by_settings = {frozenset(settings_of(plan.candidate).items()): plan for plan in ranked if key(plan.candidate) not in known}
    if not by_settings:
        return None
    study, choices = build(ranked, tried, objective)
    asked = study.ask(dict[str, BaseDistribution](choices))
    return by_settings[frozenset(asked.params.items())]


def build(
    ranked: Sequence[Plan], tried: Sequence[Tried], objective: str = "throughput"
) -> tuple[optuna.Study, dict[str, CategoricalDistribution]]:
    """An Optuna study in memory over the settings in ``ranked`` and ``tried``, with a trial for each tried candidate.

    Minimises step seconds (peak bytes where memory is the objective).
    """
    choices = _choices(ranked, tried)
    sampler = BestPredicted(ranked, dict(choices), objective)
    study = optuna.create_study(study_name=f"strategist-{_digest(choices)}", direction="minimize", sampler=sampler)
    study.add_trials([_trial(item, choices, objective) for item in tried])
    return study, choices


def score(measurement: Measurement | None, objective: str = "throughput") -> float | None:
    """What the objective minimises, as measured; None for a trial that did not end well."""
    if measurement is None or measurement.outcome is not Outcome.OK:
        return None
    return float(max(measurement.peak_memory_bytes)) if objective == "memory" else measurement.step_seconds


def _trial(tried: Tried, choices: dict[str, CategoricalDistribution], objective: str) -> FrozenTrial:
    """One trial for Optuna, whose samplers forget what failed: so a failure is a pruned trial that violates a constraint."""
    plan, measurement = tried.plan, tried.measurement
    common: dict[str, Any] = {"params": settings_of(plan.candidate), "distributions": choices}
    if measurement is None or measurement.outcome in SILENT:
        return create_trial(state=TrialState.RUNNING if measurement is None else TrialState.FAIL, **common)
    value, oom = score(measurement, objective), measurement.outcome is Outcome.OOM
    common["user_attrs"] = {"outcome": measurement.outcome.value, **({OOM_RATIO: memory_ratio(plan)} if oom else {})}
    seen = max(measurement.peak_memory_bytes, default=0) / plan.estimate.capacity_bytes
    over = max(seen, memory_ratio(plan), 1 + OVER) - 1 if oom else seen - 1
    constraints = {"memory": over, "runs": 0.0 if oom or value is not None else 1.0}
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    return create_trial(state=state, value=value, **common, **_constraints(constraints))


def _constraints(violations: dict[str, float]) -> dict[str, Any]:
    """As arguments of ``create_trial``: named from Optuna 5.0 on, a bare list before."""
    if "constraints" in inspect.signature(create_trial).parameters:
        return {"constraints": violations}
    return {"system_attrs": {"constraints": list(violations.values())}}


def _choices(ranked: Sequence[Plan], tried: Sequence[Tried]) -> dict[str, CategoricalDistribution]:
    """One distribution a setting, over the values that occur, in a fixed order."""
    values: dict[str, set[KnobValue]] = {}
    for plan in (*ranked, *(item.plan for item in tried)):
        for name, value in settings_of(plan.candidate).items():
            values.setdefault(name, set()).add(value)
    order = {name: sorted(found, key=lambda value: (str(type(value)), value)) for name, found in values.items()}
    return {name: CategoricalDistribution(items) for name, items in order.items()}


def _digest(choices: dict[str, CategoricalDistribution]) -> str:
    text = repr([(name, distribution.choices) for name, distribution in choices.items()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
