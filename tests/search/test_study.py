"""The Optuna study that is built from trials."""

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from search.plans import measured, plan
from strategist.contract.goals import THROUGHPUT_ONLY, Goals
from strategist.contract.measurement import Outcome
from strategist.search.study import Tried, build as build_study, choices_of, observed_candidates, propose

RANKED = [
    plan(1.0),
    plan(2.0, micro_batch=2, reshard_after_forward=False),
    plan(3.0, dp_shard=2, tp=2, reshard_after_forward="subgroup"),
]


def build(ranked, tried, goals=THROUGHPUT_ONLY):  # type: ignore[no-untyped-def]
    known, seen = observed_candidates(ranked, tried, goals)
    return build_study(known, seen), choices_of(known)


def constraints(trial: FrozenTrial) -> dict[str, float]:
    """Constraint values by name; Optuna before 5.0 has a bare list."""
    if hasattr(trial, "constraints"):
        return trial.constraints
    return dict(zip(("memory", "runs"), trial.system_attrs["constraints"], strict=True))


def test_each_distribution_has_the_values_that_occur() -> None:
    study, choices = build(RANKED, [])
    assert choices["layout.tp"].choices == (1, 2)
    assert set(choices["knobs.reshard_after_forward"].choices) == {True, False, "subgroup"}
    assert choices["knobs.pp_schedule"].choices == ("1f1b",)
    assert study.trials == []


def test_a_finished_trial_has_its_measured_value_and_constraints() -> None:
    study, _ = build(RANKED, [Tried(plan=RANKED[1], measurement=measured(RANKED[1], step_seconds=2.5, peak=450))])
    (trial,) = study.trials
    assert (trial.state, trial.value, trial.params["knobs.micro_batch"]) == (TrialState.COMPLETE, 2.5, 2)
    assert constraints(trial) == {"memory": -0.5, "runs": 0.0}
    assert study.best_trial.number == trial.number


def test_the_memory_objective_minimises_the_measured_peak() -> None:
    trials = [Tried(plan=item, measurement=measured(item, peak=i)) for i, item in enumerate(RANKED, 1)]
    study, _ = build(RANKED, trials, Goals(objectives=("memory",)))
    assert study.best_value == 1.0


@pytest.mark.parametrize(("peak", "over"), [(400.0, 0.01), (1800.0, 1.0)])
def test_an_oom_is_a_memory_constraint_violation_with_its_size(peak: float, over: float) -> None:
    large = plan(1.0, peak=peak)
    study, _ = build([large], [Tried(plan=large, measurement=measured(large, Outcome.OOM))])
    (trial,) = study.trials
    assert trial.state is TrialState.PRUNED
    assert constraints(trial) == {"memory": pytest.approx(over), "runs": 0.0}


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.TIMEOUT, Outcome.NAN])
def test_failed_trials_are_pruned_trials_that_violate_the_runs_constraint(outcome: Outcome) -> None:
    study, _ = build(RANKED, [Tried(plan=RANKED[0], measurement=measured(RANKED[0], outcome))])
    assert (study.trials[0].state, constraints(study.trials[0])["runs"]) == (TrialState.PRUNED, 1.0)


def test_trials_outside_the_space_are_included() -> None:
    outside = plan(1.0, micro_batch=64)
    study, choices = build(RANKED, [Tried(plan=outside, measurement=measured(outside))])
    assert 64 in choices["knobs.micro_batch"].choices
    assert len(study.trials) == 1


def test_the_study_name_identifies_the_space() -> None:
    assert build(RANKED, [])[0].study_name == build(list(reversed(RANKED)), [])[0].study_name
    assert build(RANKED, [])[0].study_name != build(RANKED[:2], [])[0].study_name


def test_optunas_importance_evaluator_works_on_the_study() -> None:
    trials = [Tried(plan=item, measurement=measured(item, step_seconds=i)) for i, item in enumerate(RANKED, 1)]
    study, _ = build(RANKED, trials)
    importances = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    assert set(importances) >= {"knobs.micro_batch", "layout.tp"}


def test_proposals_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    found = propose(RANKED, [])
    assert found is not None
    assert found.plan is RANKED[0]
    assert capfd.readouterr() == ("", "")
