"""Plans that differ in candidate and prediction, and their measurements."""

from dataclasses import replace
from typing import Any

from contract.samples import PLAN

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan, Reason

PREFERENCE = Reason(card="TP-001", policy="p", effect="prefer", text="Because.")


def plan(step_seconds: float, peak: float = 400.0, preferences: int = 0, dp_shard: int = 4, tp: int = 1, **knobs: Any) -> Plan:
    """A plan with the given predicted step time and peak memory, of a capacity of 900 bytes."""
    estimate = replace(PLAN.estimate, step_seconds=step_seconds, tokens_per_second=1 / step_seconds, peak_memory_bytes=peak)
    candidate = Candidate(layout=Layout(dp_shard=dp_shard, tp=tp), knobs=Knobs(**knobs))
    return replace(PLAN, candidate=candidate, estimate=estimate, reasons=(PREFERENCE,) * preferences).identified()


def measured(plan: Plan, outcome: Outcome = Outcome.OK, step_seconds: float | None = 1.0, peak: int = 500) -> Measurement:
    """A measurement of a trial of the plan."""
    if outcome is not Outcome.OK:
        return Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=outcome)
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=outcome, step_seconds=step_seconds, steps_measured=5,
        tokens_per_second=plan.workload.tokens_per_step / (step_seconds or 1.0), peak_memory_bytes=(peak,),
    )  # fmt: skip
