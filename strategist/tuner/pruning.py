"""Pruning: ends a trial whose first steps are already slower than the best."""

import statistics

from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.search.tuning_result import TrialResult
from strategist.units import show_seconds

LEAST_STEPS = 3
"""Minimum number of counted steps before a trial can be pruned; after half of its steps it runs to the end."""

OPTIMISM = 0.1
"""The steps to come may be faster by this share than the fastest so far."""


def pruning_reason(progress: Progress, settings: TrialSettings, best: TrialResult) -> str:
    """Why the trial cannot become better than the best; empty while it can."""
    seen, measured = progress.step_seconds, best.measurement
    if not LEAST_STEPS <= len(seen) <= settings.steps // 2 or measured is None or measured.step_seconds is None:
        return ""
    if (1 - OPTIMISM) * min(seen) <= measured.step_seconds:
        return ""
    return (
        f"after {len(seen)} of {settings.steps} steps the fastest took {show_seconds(min(seen))}; {OPTIMISM:.0%} less is still more"
        f" than the {show_seconds(measured.step_seconds)} of trial {best.number}"
    )


def pruned_measurement(plan: Plan, kind: Kind, progress: Progress, why: str) -> Measurement:
    """The measurement of a trial that was ended for want of hope: its steps so far are known."""
    seconds = statistics.median(progress.step_seconds)
    return Measurement(
        plan_id=plan.id,
        kind=kind,
        outcome=Outcome.PRUNED,
        evidence=Evidence(message=why, phase=progress.phase),
        step_seconds=seconds,
        steps_measured=len(progress.step_seconds),
        tokens_per_second=plan.workload.tokens_per_step / seconds,
        wall_seconds=progress.elapsed_seconds,
    )
