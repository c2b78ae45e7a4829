"""The plan that a format can express: unsupported settings are replaced, so that a file and its remarks agree."""

from collections.abc import Iterator
from dataclasses import replace

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_CHOICES, value_of, with_settings
from strategist.expr.check import Expression
from strategist.expr.columns import row_of
from strategist.expr.evaluate import Facts, scalar
from strategist.rules.backend import Backend

DEFAULT_CANDIDATE = Candidate(layout=Layout(), knobs=Knobs())


def supported_plan(plan: Plan, limits: Backend, facts: Facts) -> Plan:
    """The plan with other values for the knobs and options that ``limits`` refuse; layout, model and workload stay."""
    candidate = plan.candidate
    for name in limits.unsupported_settings(candidate, plan.model, plan.workload, plan.cluster.device.kind):
        candidate = next(_variants(candidate, name, limits), candidate)
    for refusal in limits.refuses:

        def holds(changed: Candidate, when: Expression = refusal.when) -> bool:
            return scalar(when, {**facts, **row_of(changed, changed.accumulation(plan.workload))}) is True

        if holds(candidate):
            changes = (changed for name in sorted(refusal.when.names) for changed in _variants(candidate, name, limits))
            candidate = next((changed for changed in changes if not holds(changed)), candidate)
    return replace(plan, candidate=candidate)


def _variants(candidate: Candidate, name: str, limits: Backend) -> Iterator[Candidate]:
    """The candidate with every other allowed value of one knob or option, the default first."""
    part, _, setting = name.partition(".")
    if part in ("knobs", "options") and hasattr(getattr(candidate, part), setting):
        for value in (value_of(DEFAULT_CANDIDATE, setting), *SETTING_CHOICES.get(setting, limits.limits.get(name, ()))):
            if limits.allows(name, value) and value != value_of(candidate, setting):
                yield with_settings(candidate, {setting: value})
