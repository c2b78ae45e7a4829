"""Few-shot calibration: error on a machine's rows after fitting to a few of its other rows."""

import random
from collections.abc import Sequence

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.case_observation import observation
from strategist.accuracy.grouping import grouped
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import TRIAL_FACTORS, fitted
from strategist.cost.observation import Observation, tables
from strategist.frozen import frozen

CALIBRATION_ROWS = (0, 5, 10, 20)
"""Numbers of rows that are fitted to."""

MIN_TEST_ROWS = 20
"""Minimum number of rows of a group that are not fitted to."""


@frozen
class FewShotErrors:
    """Errors for the rows of one source, device and stack.

    mape, median_ape: mean and median absolute relative error on the remaining rows, by the number of fitted rows.
    """

    source: str
    device: str
    stack: str
    rows: int
    mape: dict[int, float]
    median_ape: dict[int, float]


def few_shot_errors(cases: Sequence[Case], *, shots: Sequence[int] = CALIBRATION_ROWS, seed: int = 0) -> tuple[FewShotErrors, ...]:
    """Errors of each group after fitting to some of its rows, chosen at random by ``seed``, as to the trials of a study.

    The prior is neutral, because shipped calibrations were fitted to these very rows.
    """
    timed = (case for case in cases if case.step_seconds)
    groups = grouped(timed, lambda case: (case.row.file, case.cluster.device.name, case.stack.name))
    testable = {key: members for key, members in groups.items() if len(members) >= max(shots) + MIN_TEST_ROWS}
    return tuple(_group_errors(*key, members, shots, seed) for key, members in sorted(testable.items()))


def _group_errors(source: str, device: str, stack: str, cases: list[Case], shots: Sequence[int], seed: int) -> FewShotErrors:
    shuffled = random.Random(seed).sample([observation(case) for case in cases], len(cases))
    test_rows = shuffled[max(shots) :]
    errors = {
        count: _errors(test_rows, fitted(shuffled[:count], NEUTRAL, TRIAL_FACTORS).calibration if count else NEUTRAL)
        for count in shots
    }
    return FewShotErrors(
        source=source,
        device=device,
        stack=stack,
        rows=len(cases),
        mape={count: float(absolute_errors.mean()) for count, absolute_errors in errors.items()},
        median_ape={count: float(np.median(absolute_errors)) for count, absolute_errors in errors.items()},
    )


def _errors(test_rows: Sequence[Observation], calibration: Calibration) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Absolute relative errors of the step times; the remaining rows are the same for every calibration."""
    errors = np.zeros(len(test_rows))
    for group in tables(test_rows):
        seconds = group.step(calibration).seconds
        for row, index in enumerate(group.members):
            errors[index] = abs(float(seconds[row]) / (test_rows[index].step_seconds or 1.0) - 1)
    return errors
