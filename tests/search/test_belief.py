"""What trials say of candidates that nobody tried."""

import numpy as np
import pytest

from strategist.search.belief import NOISE, Seen, believe, gains
from strategist.search.prospects import Prospects


def known(predicted, memory_ratio=0.5, shares=None, **settings):
    count = len(predicted)
    names = settings or {"micro_batch": [2**place for place in range(count)]}
    return Prospects(
        settings=tuple({name: values[place] for name, values in names.items()} for place in range(count)),
        predicted=np.array(predicted, dtype=float),
        memory_ratio=np.broadcast_to(np.array(memory_ratio, dtype=float), (count,)),
        shares=np.array(shares if shares is not None else [[1.0]] * count),
    )


def test_before_any_trial_the_cost_model_is_believed():
    found = believe(known([1.0, 3.0]), [])
    np.testing.assert_allclose(np.exp(found.mean), [1.0, 3.0])
    assert found.deviation.min() > 0.2


def test_a_measured_candidate_is_known_up_to_noise():
    found = believe(known([1.0, 3.0]), [Seen(place=0, value=2.0)])
    assert np.exp(found.mean[0]) == pytest.approx(2.0, rel=0.05)
    assert found.deviation[0] < NOISE < found.deviation[1]


def test_who_spends_its_time_alike_errs_alike():
    shares = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    found = believe(known([1.0, 1.0, 1.0], shares=shares, a=[1, 1, 1], b=["x", "y", "z"]), [Seen(place=0, value=2.0)])
    assert found.mean[1] > found.mean[2] + 0.2


def test_near_settings_err_alike():
    found = believe(known([1.0] * 3, shares=[[0.0]] * 3, micro_batch=[1, 2, 1024]), [Seen(place=0, value=2.0)])
    assert found.mean[1] > 0.5
    assert found.mean[2] < 0.01


def test_a_trial_that_runs_yet_is_expected_to_show_its_mean():
    prospects = known([1.0, 3.0])
    running, none = believe(prospects, [Seen(place=0)]), believe(prospects, [])
    np.testing.assert_allclose(running.mean, none.mean)
    assert running.deviation[0] < NOISE


def test_two_runs_of_a_candidate_say_their_mean():
    prospects = known([1.0, 3.0])
    twice, once = (
        believe(prospects, [Seen(place=0, value=1.0), Seen(place=0, value=4.0)]),
        believe(prospects, [Seen(place=0, value=2.0)]),
    )
    np.testing.assert_allclose(twice.mean, once.mean)


def test_a_trial_that_took_too_long_is_slow_at_least():
    prospects = known([1.0, 3.0])
    slow = believe(prospects, [Seen(place=0, at_least=8.0, failed=True)])
    assert np.exp(slow.mean[0]) == pytest.approx(8.0, rel=0.1)
    assert slow.mean[1] > np.log(3.0)


def test_a_bound_below_what_is_expected_says_nothing_of_its_time():
    prospects = known([1.0, 3.0])
    found = believe(prospects, [Seen(place=1, at_least=2.0, failed=True)])
    np.testing.assert_allclose(found.mean, np.log(prospects.predicted))


def test_a_lost_trial_says_nothing():
    prospects = known([1.0, 3.0])
    lost, none = believe(prospects, [Seen(place=0, lost=True)]), believe(prospects, [])
    np.testing.assert_array_equal([lost.mean, lost.deviation, lost.runs], [none.mean, none.deviation, none.runs])


def test_memory_measured_above_its_prediction_makes_all_larger():
    prospects = known([1.0] * 3, memory_ratio=[0.3, 0.8, 0.95], micro_batch=[1, 4096, 2**24])
    before, after = believe(prospects, []), believe(prospects, [Seen(place=0, value=1.0, memory_ratio=0.45)])
    assert before.runs[1] > 0.9
    assert after.runs[1] < 0.5


def test_an_out_of_memory_bounds_from_below_and_another_failure_does_not():
    prospects = known([1.0] * 3, memory_ratio=[0.6, 0.7, 0.2], micro_batch=[1, 2**20, 2**40])
    ran_out = believe(prospects, [Seen(place=0, failed=True, out_of_memory=1.0)])
    crashed = believe(prospects, [Seen(place=0, failed=True)])
    assert ran_out.runs[1] < 0.3 < 0.9 < ran_out.runs[2]
    assert crashed.runs[1] > 0.9


@pytest.mark.parametrize("measured", [0.001, 400.0])
def test_memory_far_from_every_expectation_is_believed_as_far_as_can_be(measured):
    found = believe(known([1.0] * 2, memory_ratio=[0.5, 0.9]), [Seen(place=0, value=1.0, memory_ratio=measured)])
    assert np.isfinite(found.runs).all()
    assert (found.runs[1] > 0.9) == (measured < 1)


def test_neighbours_of_a_failure_are_feared():
    prospects = known([1.0] * 3, micro_batch=[1, 2, 2**30])
    found = believe(prospects, [Seen(place=0, failed=True)])
    assert found.runs[1] < 0.6 < 0.95 < found.runs[2]


def test_gain_is_what_may_be_better_times_the_chance_that_it_runs():
    prospects = known([1.0, 1.0, 4.0], memory_ratio=[0.5, 1.0, 0.5], shares=[[0.0]] * 3, a=["x", "y", "z"])
    gain = gains(believe(prospects, []), best=1.0)
    assert gain[0] == pytest.approx(2 * gain[1], rel=0.1)  # just fits, in half of the cases
    assert gain[2] < 1e-6
    certain = believe(prospects, [Seen(place=0, value=0.5)])
    assert gains(certain, best=0.5)[0] < 0.05
