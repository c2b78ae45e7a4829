"""What trials say of candidates that nobody tried."""

from dataclasses import replace

import numpy as np
import pytest

from strategist.search.candidate_features import CandidateFeatures, Context
from strategist.search.surrogate import NOISE, ObservedCandidate, OtherStudies, expected_improvement, fit_surrogate


def known(predicted, memory_ratio=0.5, shares=None, **settings):
    count = len(predicted)
    names = settings or {"micro_batch": [2**place for place in range(count)]}
    return CandidateFeatures(
        settings=tuple({name: values[place] for name, values in names.items()} for place in range(count)),
        predicted=np.array(predicted, dtype=float),
        memory_ratio=np.broadcast_to(np.array(memory_ratio, dtype=float), (count,)),
        shares=np.array(shares if shares is not None else [[1.0]] * count),
    )


def test_before_any_trial_the_cost_model_is_believed():
    found = fit_surrogate(known([1.0, 3.0]), [])
    np.testing.assert_allclose(np.exp(found.mean), [1.0, 3.0])
    assert found.deviation.min() > 0.2


def test_a_measured_candidate_is_known_up_to_noise():
    found = fit_surrogate(known([1.0, 3.0]), [ObservedCandidate(place=0, value=2.0)])
    assert np.exp(found.mean[0]) == pytest.approx(2.0, rel=0.05)
    assert found.deviation[0] < NOISE < found.deviation[1]


def test_who_spends_its_time_alike_errs_alike():
    shares = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    found = fit_surrogate(
        known([1.0, 1.0, 1.0], shares=shares, a=[1, 1, 1], b=["x", "y", "z"]), [ObservedCandidate(place=0, value=2.0)]
    )
    assert found.mean[1] > found.mean[2] + 0.2


def test_near_settings_err_alike():
    found = fit_surrogate(known([1.0] * 3, shares=[[0.0]] * 3, micro_batch=[1, 2, 1024]), [ObservedCandidate(place=0, value=2.0)])
    assert found.mean[1] > 0.5
    assert found.mean[2] < 0.01


def test_a_trial_that_runs_yet_is_expected_to_show_its_mean():
    prospects = known([1.0, 3.0])
    running, none = fit_surrogate(prospects, [ObservedCandidate(place=0)]), fit_surrogate(prospects, [])
    np.testing.assert_allclose(running.mean, none.mean)
    assert running.deviation[0] < NOISE


def test_two_runs_of_a_candidate_say_their_mean():
    prospects = known([1.0, 3.0])
    twice, once = (
        fit_surrogate(prospects, [ObservedCandidate(place=0, value=1.0), ObservedCandidate(place=0, value=4.0)]),
        fit_surrogate(prospects, [ObservedCandidate(place=0, value=2.0)]),
    )
    np.testing.assert_allclose(twice.mean, once.mean)


def test_a_trial_that_took_too_long_is_slow_at_least():
    prospects = known([1.0, 3.0])
    slow = fit_surrogate(prospects, [ObservedCandidate(place=0, at_least=8.0, failed=True)])
    assert np.exp(slow.mean[0]) == pytest.approx(8.0, rel=0.1)
    assert slow.mean[1] > np.log(3.0)


def test_a_bound_below_what_is_expected_says_nothing_of_its_time():
    prospects = known([1.0, 3.0])
    found = fit_surrogate(prospects, [ObservedCandidate(place=1, at_least=2.0, failed=True)])
    np.testing.assert_allclose(found.mean, np.log(prospects.predicted))


def test_a_lost_trial_says_nothing():
    prospects = known([1.0, 3.0])
    lost, none = fit_surrogate(prospects, [ObservedCandidate(place=0, lost=True)]), fit_surrogate(prospects, [])
    np.testing.assert_array_equal([lost.mean, lost.deviation, lost.runs], [none.mean, none.deviation, none.runs])


def test_memory_measured_above_its_prediction_makes_all_larger():
    prospects = known([1.0] * 3, memory_ratio=[0.3, 0.8, 0.95], micro_batch=[1, 4096, 2**24])
    before, after = (
        fit_surrogate(prospects, []),
        fit_surrogate(prospects, [ObservedCandidate(place=0, value=1.0, memory_ratio=0.45)]),
    )
    assert before.runs[1] > 0.9
    assert after.runs[1] < 0.5


def test_an_out_of_memory_bounds_from_below_and_another_failure_does_not():
    prospects = known([1.0] * 3, memory_ratio=[0.6, 0.7, 0.2], micro_batch=[1, 2**20, 2**40])
    ran_out = fit_surrogate(prospects, [ObservedCandidate(place=0, failed=True, out_of_memory=1.0)])
    crashed = fit_surrogate(prospects, [ObservedCandidate(place=0, failed=True)])
    assert ran_out.runs[1] < 0.3 < 0.9 < ran_out.runs[2]
    assert crashed.runs[1] > 0.9


@pytest.mark.parametrize("measured", [0.001, 400.0])
def test_memory_far_from_every_expectation_is_believed_as_far_as_can_be(measured):
    found = fit_surrogate(known([1.0] * 2, memory_ratio=[0.5, 0.9]), [ObservedCandidate(place=0, value=1.0, memory_ratio=measured)])
    assert np.isfinite(found.runs).all()
    assert (found.runs[1] > 0.9) == (measured < 1)


def test_neighbours_of_a_failure_are_feared():
    prospects = known([1.0] * 3, micro_batch=[1, 2, 2**30])
    found = fit_surrogate(prospects, [ObservedCandidate(place=0, failed=True)])
    assert found.runs[1] < 0.6 < 0.95 < found.runs[2]


def test_gain_is_what_may_be_better_times_the_chance_that_it_runs():
    prospects = known([1.0, 1.0, 4.0], memory_ratio=[0.5, 1.0, 0.5], shares=[[0.0]] * 3, a=["x", "y", "z"])
    gain = expected_improvement(fit_surrogate(prospects, []), best=1.0)
    assert gain[0] == pytest.approx(2 * gain[1], rel=0.1)  # just fits, in half of the cases
    assert gain[2] < 1e-6
    certain = fit_surrogate(prospects, [ObservedCandidate(place=0, value=0.5)])
    assert expected_improvement(certain, best=0.5)[0] < 0.05


HERE = known([1.0] * 3, shares=[[0.0]] * 3, micro_batch=[1, 2, 1024])


def there(*seen: ObservedCandidate) -> OtherStudies:
    return OtherStudies(known=known([7.0, 7.0], memory_ratio=0.9, shares=[[0.0]] * 2, micro_batch=[1, 1024]), seen=seen)


def test_what_another_study_showed_tells_of_its_like_here_but_less_than_a_trial_of_ours():
    own = fit_surrogate(HERE, [ObservedCandidate(place=0, value=2.0)])
    theirs = fit_surrogate(HERE, [], [there(ObservedCandidate(place=0, value=14.0), ObservedCandidate(place=1, value=7.0))])
    assert 0.2 < theirs.mean[1] < 0.8 * own.mean[1]
    assert theirs.mean[2] < 0.01 < theirs.mean[1]
    assert own.deviation[0] < theirs.deviation[0] < fit_surrogate(HERE, []).deviation[0]


def test_what_is_slow_in_another_study_as_a_whole_says_little_here():
    found = fit_surrogate(HERE, [], [there(ObservedCandidate(place=0, value=14.0), ObservedCandidate(place=1, value=14.0))])
    assert np.abs(found.mean).max() < 0.15


def test_the_larger_or_smaller_another_study_s_model_or_cluster_the_less_it_tells():
    def told(devices: int, device: str = "A") -> float:
        here = replace(HERE, contexts=(Context(device="A", doublings=(3.0,)),))
        other = there(ObservedCandidate(place=0, value=14.0), ObservedCandidate(place=1, value=7.0))
        of = (Context(device=device, doublings=(float(devices),)),)
        return fit_surrogate(here, [], [replace(other, known=replace(other.known, contexts=of))]).mean[0]

    assert told(3) > told(4) > told(6) > told(9) > 0
    assert told(3) > told(3, "B") > told(5)


def test_a_trial_of_ours_overrules_that_of_another_study():
    found = fit_surrogate(HERE, [ObservedCandidate(place=0, value=1.0)], [there(ObservedCandidate(place=0, value=14.0))])
    assert found.mean[0] == pytest.approx(0.0, abs=NOISE)


def test_what_another_study_showed_is_no_best_of_ours_and_none_of_its_candidates_is_proposed():
    found = fit_surrogate(HERE, [], [there(ObservedCandidate(place=1, value=7.0))])
    assert len(found.mean) == len(found.deviation) == len(found.runs) == len(HERE)


def test_failures_and_memory_of_another_study_count_for_less():
    full = known([1.0] * 3, memory_ratio=[0.6, 0.7, 0.75], shares=[[0.0]] * 3, micro_batch=[1, 2, 1024])
    none, crashed = fit_surrogate(full, []), ObservedCandidate(place=0, failed=True)
    assert fit_surrogate(full, [crashed]).runs[0] < fit_surrogate(full, [], [there(crashed)]).runs[0] < none.runs[0]
    far = replace(full, settings=tuple({"micro_batch": 2**power} for power in (40, 1, 2)))
    own = fit_surrogate(far, [ObservedCandidate(place=0, value=1.0, memory_ratio=1.0)])
    theirs = fit_surrogate(far, [], [there(ObservedCandidate(place=1, value=7.0, memory_ratio=1.5))])
    assert own.runs[1] < theirs.runs[1] < 0.9 * none.runs[1]


def test_a_candidate_is_predicted_among_many_as_among_few() -> None:
    rng = np.random.default_rng(0)
    sizes, choices = rng.integers(0, 4, 200), rng.integers(0, 3, 200)
    told = {"micro_batch": (2**sizes).tolist(), "recompute": [("none", "full", "selective")[code] for code in choices]}
    many = known(rng.uniform(1, 2, 200).tolist(), memory_ratio=rng.uniform(0.5, 1.5, 200), **told)
    few = known(many.predicted[:9].tolist(), many.memory_ratio[:9], **{name: values[:9] for name, values in told.items()})
    seen = [ObservedCandidate(place=1, value=1.7, memory_ratio=0.9), ObservedCandidate(place=4, failed=True, out_of_memory=1.0)]
    whole, part = fit_surrogate(many, seen), fit_surrogate(few, seen)
    for name in ("mean", "deviation", "runs"):
        np.testing.assert_allclose(getattr(whole, name)[:9], getattr(part, name), rtol=1e-9)
