"""Stalled steps are distinguished from ordinary ones by the tail of the errors."""

import numpy as np

from strategist import api
from strategist.accuracy.stalled_steps import MIN_ROWS, regular_step_probability, without_stalled


def log_errors(ordinary_steps: int, stalled_steps: int, centre: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    stalls = centre + generator.uniform(0.8, 3.5, stalled_steps)
    return np.concatenate([centre + 0.1 * generator.standard_normal(ordinary_steps), stalls])


def test_stalls_are_found_even_if_two_thirds_of_the_steps_stall() -> None:
    for centre in (-0.4, 0.0, 0.6):
        found = regular_step_probability(log_errors(100, 200, centre))
        assert found[:100].mean() > 0.9
        assert found[100:].max() < 0.05


def test_a_sweep_without_a_tail_has_no_stalls() -> None:
    assert regular_step_probability(log_errors(200, 0, 0.1)).mean() > 0.97


def test_steps_faster_than_predicted_are_not_stalls() -> None:
    errors = np.concatenate([log_errors(100, 0, 0.0), [-2.0, -1.0]])
    assert regular_step_probability(errors)[-2:].tolist() == [1.0, 1.0]


def test_too_few_rows_give_no_stalls() -> None:
    assert regular_step_probability(log_errors(MIN_ROWS - 5, 4, 0.0)).tolist() == [1.0] * (MIN_ROWS - 1)


def test_only_slow_timed_rows_are_removed_as_stalled() -> None:
    priced = list(api.accuracy(source="hf_ultrascale_playbook").priced_cases)
    kept = without_stalled(priced)
    assert set(map(id, kept)) < set(map(id, priced))
    assert {id(item) for item in priced if not item.case.step_seconds} < set(map(id, kept))
    left_out = set(map(id, priced)) - set(map(id, kept))
    assert all(item.case.step_seconds > 1.2 * item.step_seconds for item in priced if id(item) in left_out)
