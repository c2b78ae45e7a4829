"""Pruning of running trials that cannot become the best."""

from search.plans import measured, plan

from strategist.contract.measurement import Kind, Outcome, TrialSettings
from strategist.contract.progress import Progress
from strategist.contract.study import TrialResult
from strategist.tuner.pruning import pruned_measurement, pruning_reason

PLAN = plan(1.0)
BEST = TrialResult(number=4, proposed_by="search", plan=PLAN, measurement=measured(PLAN, step_seconds=1.0))
SETTINGS = TrialSettings(steps=10)


def progress(*seconds: float) -> Progress:
    return Progress(phase="measure", step=len(seconds), elapsed_seconds=30.0, step_seconds=seconds)


def test_a_trial_whose_fastest_step_is_too_slow_is_pruned() -> None:
    why = pruning_reason(progress(2.0, 1.5, 1.8), SETTINGS, BEST)
    assert why == "after 3 of 10 steps the fastest took 1.5 s; 10% less is still more than the 1 s of trial 4"


def test_a_trial_with_one_fast_step_is_not_pruned() -> None:
    assert not pruning_reason(progress(2.0, 2.0, 1.05, 2.0), SETTINGS, BEST)


def test_a_trial_is_not_pruned_before_three_steps_or_after_half() -> None:
    assert not pruning_reason(progress(9.0, 9.0), SETTINGS, BEST)
    assert not pruning_reason(progress(*[9.0] * 6), SETTINGS, BEST)


def test_a_pruned_trial_keeps_its_measured_steps() -> None:
    found = pruned_measurement(PLAN, Kind.REAL, progress(2.0, 1.5, 1.8), "why")
    assert (found.outcome, found.step_seconds, found.steps_measured) == (Outcome.PRUNED, 1.8, 3)
    assert found.tokens_per_second == PLAN.workload.tokens_per_step / 1.8
    assert found.evidence.message == "why"
    assert found.wall_seconds == 30.0
