"""Sweeps, priced without their own measurements."""

from dataclasses import replace

import numpy as np
import pytest

from strategist.accuracy.case import Case, case_of
from strategist.accuracy.sweep import Sweep, common_without, priced_by, priced_without, sweeps_by_name
from strategist.cost.calibration import NEUTRAL

from .published import made


def run(tp: int = 1, micro_batch: int = 1, seconds: float | None = 2.0, **cells: object) -> Case:
    oom = int(seconds is None)
    shape = {"tp": tp, "dp_shard": 8 // tp, "micro_batch": micro_batch, "step_time_s": seconds, "oom": oom}
    return case_of(made(**{**shape, **cells}))


SWEEP = [run(tp, micro_batch, 1.0 + 0.1 * tp) for tp in (1, 2, 4, 8) for micro_batch in (1, 2)]
OTHERS = [run(tp, 1, 2.0 + 0.1 * tp, global_batch=batch) for tp in (1, 2, 4) for batch in (32, 64, 128)]
OTHER_FILES = [run(tp, 1, 3.0, file="other", global_batch=batch) for tp in (1, 2) for batch in (8, 24)]


def priced(sweep, others=(*OTHERS, *OTHER_FILES)):
    cases = [*others, *sweep]
    return priced_without(cases, sweep, common_without(cases, sweep))


@pytest.fixture(scope="module")
def whole() -> Sweep:
    return priced(SWEEP)


def test_a_sweep_needs_enough_timed_rows_that_differ_in_layout_only() -> None:
    found = sweeps_by_name([*SWEEP, *OTHERS, *OTHER_FILES], min_rows=8)
    assert list(found.values()) == [SWEEP]
    assert sweeps_by_name([run(tp, seconds=None) for tp in (1, 2, 4)], min_rows=3) == {}  # every run is out of memory


def test_predictions_of_a_sweep_do_not_depend_on_its_own_measurements(whole: Sweep) -> None:
    slower = priced([replace(case, step_seconds=7 * case.step_seconds) for case in SWEEP])
    np.testing.assert_array_equal(whole.predicted_seconds, slower.predicted_seconds)
    np.testing.assert_allclose(7 * whole.step_seconds, slower.step_seconds)


def test_predictions_of_a_sweep_depend_on_other_measurements(whole: Sweep) -> None:
    slower = [replace(case, step_seconds=3 * case.step_seconds) for case in (*OTHERS, *OTHER_FILES)]
    assert priced(SWEEP, slower).predicted_seconds.mean() > 1.4 * whole.predicted_seconds.mean()


def test_cases_are_sorted_by_prediction_and_repeated_runs_are_merged() -> None:
    found = priced_by(NEUTRAL, [*SWEEP, run(1, 1, 1.5), run(1, 1, None), run(2, 4, None)])
    assert found.rows == len(SWEEP) + 3
    assert len(found.cases) == len(SWEEP) + 1
    assert np.isinf(found.step_seconds).sum() == 1  # the candidate that only ran out of memory
    assert (np.diff(found.predicted_seconds) >= 0).all()
    first = next(place for place, case in enumerate(found.cases) if case.candidate == SWEEP[0].candidate)
    assert found.step_seconds[first] == pytest.approx(1.3)  # the median of 1.1 and 1.5
