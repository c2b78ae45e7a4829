"""Trials of a history as cases: the user's own sweep, searched again like a published one."""

from collections.abc import Sequence

from strategist.accuracy.case import Case
from strategist.accuracy.row import Row
from strategist.contract.measurement import EVIDENCE_OUTCOMES, Kind, Outcome
from strategist.contract.stack import native_stack
from strategist.profiles.history import Record


def cases_of(records: Sequence[Record], name: str) -> list[Case]:
    """Cases of the really measured trials whose outcome depends on the plan; ``name`` becomes their source."""
    return [
        _case(record, name, line)
        for line, record in enumerate(records, start=1)
        if record.measurement.kind is Kind.REAL and record.measurement.outcome in EVIDENCE_OUTCOMES
    ]


def _case(record: Record, name: str, line: int) -> Case:
    plan, measurement = record.plan, record.measurement
    ran = measurement.outcome is Outcome.OK
    return Case(
        row=Row(file=name, line=line, model=plan.model.name),
        model=plan.model,
        cluster=plan.cluster,
        workload=plan.workload,
        stack=native_stack(plan.candidate.options, plan.workload.optimizer),
        candidate=plan.candidate,
        accumulation=plan.accumulation,
        step_seconds=measurement.step_seconds if ran else None,
        peak_memory_bytes=max(measurement.peak_memory_bytes, default=None) if ran else None,
        reserved=False,
        oom=measurement.outcome is Outcome.OOM,
    )
