"""Pruning: ends a trial whose first steps are already slower than the best trial."""

import statistics

from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.contract.study import TrialResult
from strategist.units import show_seconds

MIN_STEPS = 3
"""Minimum number of measured steps before a trial can be pruned; after half of its steps it runs to the end."""

MARGIN = 0.1
"""Share by which later steps are assumed to be faster, at best, than the fastest so far."""


def pruning_reason(progress: Progress, settings: TrialSettings, best: TrialResult) -> str:
    """Why the trial cannot become better than the best; empty if it can."""
    step_seconds, measured = progress.step_seconds, best.measurement
    if not MIN_STEPS <= len(step_seconds) <= settings.steps // 2 or measured is None or measured.step_seconds is None:
        return ""
    if (1 - MARGIN) * min(step_seconds) <= measured.step_seconds:
        return ""
    return (
        f"after {len(step_seconds)} of {settings.steps} steps the fastest took {show_seconds(min(step_seconds))}; {MARGIN:.0%} less"
        f" is still more than the {show_seconds(measured.step_seconds)} of trial {best.number}"
    )


def pruned_measurement(plan: Plan, kind: Kind, progress: Progress, reason: str) -> Measurement:
    """The measurement of a pruned trial, from its steps so far."""
    seconds = statistics.median(progress.step_seconds)
    return Measurement(
        plan_id=plan.id,
        kind=kind,
        outcome=Outcome.PRUNED,
        evidence=Evidence(message=reason, phase=progress.phase),
        step_seconds=seconds,
        steps_measured=len(progress.step_seconds),
        tokens_per_second=plan.workload.tokens_per_step / seconds,
        wall_seconds=progress.elapsed_seconds,
    )
