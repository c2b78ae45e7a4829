"""Stalled steps are distinguished from ordinary ones by the tail of the errors."""

from dataclasses import replace

import numpy as np

from strategist.accuracy.case import case_of
from strategist.accuracy.error_metrics import PricedCase
from strategist.accuracy.stalled_steps import MIN_ROWS, regular_step_probability, without_stalled
from tests.accuracy.published import made


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


def priced(step_seconds: float | None, file: str = "one") -> PricedCase:
    """A row with this step time, for which 1 s was predicted."""
    case = replace(case_of(made(file=file, step_time_s=1.0)), step_seconds=step_seconds)
    return PricedCase(case=case, step_seconds=1.0, peak_memory_bytes=1.0, fit_confidence=1.0)


def test_only_slow_timed_rows_are_removed_as_stalled() -> None:
    """Each source has its own mixture: all rows of the other one are as slow as the stalled rows of the first."""
    rows = [priced(seconds) for seconds in np.exp(log_errors(100, 50, 0.0))]
    others = [priced(seconds, "two") for seconds in np.exp(log_errors(MIN_ROWS, 0, 1.5))]
    kept = set(map(id, without_stalled([*rows, priced(None), *others])))
    left_out = [item for item in (*rows, *others) if id(item) not in kept]
    assert len(kept) == len(rows) + 1 + len(others) - len(left_out)
    assert set(map(id, rows[100:])) <= set(map(id, left_out)) <= set(map(id, rows))
    assert all(item.case.step_seconds > 1.2 for item in left_out)
