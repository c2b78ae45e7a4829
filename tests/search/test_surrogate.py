"""The surrogate: predictions for untried candidates from trials."""

from dataclasses import replace

import numpy as np
import pytest

from strategist.search.candidate_features import CandidateFeatures, Context
from strategist.search.surrogate import NOISE, ObservedCandidate, OtherStudies, expected_improvement, fit_surrogate


def candidate_features(predicted, memory_ratio=0.5, shares=None, **settings):
    count = len(predicted)
    names = settings or {"micro_batch": [2**place for place in range(count)]}
    return CandidateFeatures(
        settings=tuple({name: values[place] for name, values in names.items()} for place in range(count)),
        predicted=np.array(predicted, dtype=float),
        memory_ratio=np.broadcast_to(np.array(memory_ratio, dtype=float), (count,)),
        shares=np.array(shares if shares is not None else [[1.0]] * count),
    )


def test_without_trials_the_mean_is_the_cost_models_prediction():
    found = fit_surrogate(candidate_features([1.0, 3.0]), [])
    np.testing.assert_allclose(np.exp(found.mean), [1.0, 3.0])
    assert found.deviation.min() > 0.2


def test_a_measured_candidate_has_its_value_up_to_noise():
    found = fit_surrogate(candidate_features([1.0, 3.0]), [ObservedCandidate(index=0, value=2.0)])
    assert np.exp(found.mean[0]) == pytest.approx(2.0, rel=0.05)
    assert found.deviation[0] < NOISE < found.deviation[1]


def test_candidates_with_similar_time_shares_have_correlated_errors():
    shares = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    found = fit_surrogate(
        candidate_features([1.0, 1.0, 1.0], shares=shares, a=[1, 1, 1], b=["x", "y", "z"]), [ObservedCandidate(index=0, value=2.0)]
    )
    assert found.mean[1] > found.mean[2] + 0.2


def test_candidates_with_similar_settings_have_correlated_errors():
    found = fit_surrogate(
        candidate_features([1.0] * 3, shares=[[0.0]] * 3, micro_batch=[1, 2, 1024]), [ObservedCandidate(index=0, value=2.0)]
    )
    assert found.mean[1] > 0.5
    assert found.mean[2] < 0.01


def test_a_running_trial_reduces_uncertainty_but_keeps_the_mean():
    candidates = candidate_features([1.0, 3.0])
    running, none = fit_surrogate(candidates, [ObservedCandidate(index=0)]), fit_surrogate(candidates, [])
    np.testing.assert_allclose(running.mean, none.mean)
    assert running.deviation[0] < NOISE


def test_repeated_runs_of_a_candidate_count_as_their_geometric_mean():
    candidates = candidate_features([1.0, 3.0])
    twice, once = (
        fit_surrogate(candidates, [ObservedCandidate(index=0, value=1.0), ObservedCandidate(index=0, value=4.0)]),
        fit_surrogate(candidates, [ObservedCandidate(index=0, value=2.0)]),
    )
    np.testing.assert_allclose(twice.mean, once.mean)


def test_a_timeout_is_a_lower_bound_of_the_step_time():
    candidates = candidate_features([1.0, 3.0])
    slow = fit_surrogate(candidates, [ObservedCandidate(index=0, at_least=8.0, failed=True)])
    assert np.exp(slow.mean[0]) == pytest.approx(8.0, rel=0.1)
    assert slow.mean[1] > np.log(3.0)


def test_a_lower_bound_below_the_prediction_does_not_change_the_mean():
    candidates = candidate_features([1.0, 3.0])
    found = fit_surrogate(candidates, [ObservedCandidate(index=1, at_least=2.0, failed=True)])
    np.testing.assert_allclose(found.mean, np.log(candidates.predicted))


def test_a_lost_trial_changes_no_prediction():
    candidates = candidate_features([1.0, 3.0])
    lost, none = fit_surrogate(candidates, [ObservedCandidate(index=0, lost=True)]), fit_surrogate(candidates, [])
    np.testing.assert_array_equal([lost.mean, lost.deviation, lost.runs], [none.mean, none.deviation, none.runs])


def test_memory_above_its_prediction_lowers_the_feasibility_of_all():
    candidates = candidate_features([1.0] * 3, memory_ratio=[0.3, 0.8, 0.95], micro_batch=[1, 4096, 2**24])
    before, after = (
        fit_surrogate(candidates, []),
        fit_surrogate(candidates, [ObservedCandidate(index=0, value=1.0, memory_ratio=0.45)]),
    )
    assert before.runs[1] > 0.9
    assert after.runs[1] < 0.5


def test_an_oom_is_a_lower_bound_of_memory_and_a_crash_is_not():
    candidates = candidate_features([1.0] * 3, memory_ratio=[0.6, 0.7, 0.2], micro_batch=[1, 2**20, 2**40])
    ran_out = fit_surrogate(candidates, [ObservedCandidate(index=0, failed=True, out_of_memory=1.0)])
    crashed = fit_surrogate(candidates, [ObservedCandidate(index=0, failed=True)])
    assert ran_out.runs[1] < 0.3 < 0.9 < ran_out.runs[2]
    assert crashed.runs[1] > 0.9


@pytest.mark.parametrize("measured", [0.001, 400.0])
def test_extreme_memory_measurements_give_finite_probabilities(measured):
    found = fit_surrogate(
        candidate_features([1.0] * 2, memory_ratio=[0.5, 0.9]), [ObservedCandidate(index=0, value=1.0, memory_ratio=measured)]
    )
    assert np.isfinite(found.runs).all()
    assert (found.runs[1] > 0.9) == (measured < 1)


def test_a_failure_lowers_the_feasibility_of_similar_candidates():
    candidates = candidate_features([1.0] * 3, micro_batch=[1, 2, 2**30])
    found = fit_surrogate(candidates, [ObservedCandidate(index=0, failed=True)])
    assert found.runs[1] < 0.6 < 0.95 < found.runs[2]


def test_expected_improvement_is_scaled_by_the_probability_of_running():
    candidates = candidate_features([1.0, 1.0, 4.0], memory_ratio=[0.5, 1.0, 0.5], shares=[[0.0]] * 3, a=["x", "y", "z"])
    gain = expected_improvement(fit_surrogate(candidates, []), best=1.0)
    assert gain[0] == pytest.approx(2 * gain[1], rel=0.1)  # at capacity: fits with probability one half
    assert gain[2] < 1e-6
    certain = fit_surrogate(candidates, [ObservedCandidate(index=0, value=0.5)])
    assert expected_improvement(certain, best=0.5)[0] < 0.05


HERE = candidate_features([1.0] * 3, shares=[[0.0]] * 3, micro_batch=[1, 2, 1024])


def other_study(*seen: ObservedCandidate) -> OtherStudies:
    return OtherStudies(
        features=candidate_features([7.0, 7.0], memory_ratio=0.9, shares=[[0.0]] * 2, micro_batch=[1, 1024]), observations=seen
    )


def test_another_studys_trials_inform_similar_candidates_but_less_than_own_trials():
    own = fit_surrogate(HERE, [ObservedCandidate(index=0, value=2.0)])
    theirs = fit_surrogate(HERE, [], [other_study(ObservedCandidate(index=0, value=14.0), ObservedCandidate(index=1, value=7.0))])
    assert 0.2 < theirs.mean[1] < 0.8 * own.mean[1]
    assert theirs.mean[2] < 0.01 < theirs.mean[1]
    assert own.deviation[0] < theirs.deviation[0] < fit_surrogate(HERE, []).deviation[0]


def test_a_residual_common_to_another_study_has_little_effect():
    found = fit_surrogate(HERE, [], [other_study(ObservedCandidate(index=0, value=14.0), ObservedCandidate(index=1, value=14.0))])
    assert np.abs(found.mean).max() < 0.15


def test_another_studys_influence_decays_with_the_difference_of_contexts():
    def transferred_mean(devices: int, device: str = "A") -> float:
        here = replace(HERE, contexts=(Context(device="A", doublings=(3.0,)),))
        other = other_study(ObservedCandidate(index=0, value=14.0), ObservedCandidate(index=1, value=7.0))
        contexts = (Context(device=device, doublings=(float(devices),)),)
        return fit_surrogate(here, [], [replace(other, features=replace(other.features, contexts=contexts))]).mean[0]

    assert transferred_mean(3) > transferred_mean(4) > transferred_mean(6) > transferred_mean(9) > 0
    assert transferred_mean(3) > transferred_mean(3, "B") > transferred_mean(5)


def test_an_own_trial_overrides_another_studys_trial():
    found = fit_surrogate(HERE, [ObservedCandidate(index=0, value=1.0)], [other_study(ObservedCandidate(index=0, value=14.0))])
    assert found.mean[0] == pytest.approx(0.0, abs=NOISE)


def test_predictions_cover_own_candidates_only():
    found = fit_surrogate(HERE, [], [other_study(ObservedCandidate(index=1, value=7.0))])
    assert len(found.mean) == len(found.deviation) == len(found.runs) == len(HERE)


def test_failures_and_memory_of_another_study_have_less_weight():
    full = candidate_features([1.0] * 3, memory_ratio=[0.6, 0.7, 0.75], shares=[[0.0]] * 3, micro_batch=[1, 2, 1024])
    none, crashed = fit_surrogate(full, []), ObservedCandidate(index=0, failed=True)
    assert fit_surrogate(full, [crashed]).runs[0] < fit_surrogate(full, [], [other_study(crashed)]).runs[0] < none.runs[0]
    far = replace(full, settings=tuple({"micro_batch": 2**power} for power in (40, 1, 2)))
    own = fit_surrogate(far, [ObservedCandidate(index=0, value=1.0, memory_ratio=1.0)])
    theirs = fit_surrogate(far, [], [other_study(ObservedCandidate(index=1, value=7.0, memory_ratio=1.5))])
    assert own.runs[1] < theirs.runs[1] < 0.9 * none.runs[1]


def test_predictions_do_not_depend_on_other_candidates() -> None:
    rng = np.random.default_rng(0)
    sizes, choices = rng.integers(0, 4, 200), rng.integers(0, 3, 200)
    transferred_mean = {"micro_batch": (2**sizes).tolist(), "recompute": [("none", "full", "selective")[code] for code in choices]}
    many = candidate_features(rng.uniform(1, 2, 200).tolist(), memory_ratio=rng.uniform(0.5, 1.5, 200), **transferred_mean)
    few = candidate_features(
        many.predicted[:9].tolist(), many.memory_ratio[:9], **{name: values[:9] for name, values in transferred_mean.items()}
    )
    seen = [ObservedCandidate(index=1, value=1.7, memory_ratio=0.9), ObservedCandidate(index=4, failed=True, out_of_memory=1.0)]
    whole, part = fit_surrogate(many, seen), fit_surrogate(few, seen)
    for name in ("mean", "deviation", "runs"):
        np.testing.assert_allclose(getattr(whole, name)[:9], getattr(part, name), rtol=1e-9)
