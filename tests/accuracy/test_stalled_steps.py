"""Stalled steps are told from ordinary ones by their tail."""

import numpy as np

from strategist import api
from strategist.accuracy.stalled_steps import MIN_ROWS, regular_step_probability, without_stalled


def drawn(ordinary_steps: int, stalled_steps: int, centre: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    stalls = centre + generator.uniform(0.8, 3.5, stalled_steps)
    return np.concatenate([centre + 0.1 * generator.standard_normal(ordinary_steps), stalls])


def test_two_thirds_of_a_sweep_may_stall_and_are_found_around_any_centre() -> None:
    for centre in (-0.4, 0.0, 0.6):
        found = regular_step_probability(drawn(100, 200, centre))
        assert found[:100].mean() > 0.9
        assert found[100:].max() < 0.05


def test_a_sweep_without_a_tail_is_ordinary() -> None:
    assert regular_step_probability(drawn(200, 0, 0.1)).mean() > 0.97


def test_steps_faster_than_predicted_are_ordinary() -> None:
    errors = np.concatenate([drawn(100, 0, 0.0), [-2.0, -1.0]])
    assert regular_step_probability(errors)[-2:].tolist() == [1.0, 1.0]


def test_few_rows_do_not_tell_two_states_apart() -> None:
    assert regular_step_probability(drawn(MIN_ROWS - 5, 4, 0.0)).tolist() == [1.0] * (MIN_ROWS - 1)


def test_rows_that_stalled_are_left_out_of_their_source_alone() -> None:
    judged = list(api.accuracy(source="hf_ultrascale_playbook").judged)
    kept = without_stalled(judged)
    assert set(map(id, kept)) < set(map(id, judged))
    assert {id(item) for item in judged if not item.case.step_seconds} < set(map(id, kept))
    left_out = set(map(id, judged)) - set(map(id, kept))
    assert all(item.case.step_seconds > 1.2 * item.step_seconds for item in judged if id(item) in left_out)
