"""Few-shot calibration: how a few of a machine's own rows reduce the error on its other rows."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.case_observation import observation
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import OF_TRIALS, fitted
from strategist.cost.observation import Observation, tables

SHOTS = (0, 5, 10, 20)
"""Rows that calibrate."""

LEAST_REST = 20
"""Rows that a group needs beside those that calibrate."""


@dataclass(frozen=True, kw_only=True)
class FewShotErrors:
    """A source's rows on one device with one stack: by how many of them calibrated, the mean and median error on the rest."""

    source: str
    device: str
    stack: str
    rows: int
    mape: dict[int, float]
    median_ape: dict[int, float]


def few_shot_errors(cases: Sequence[Case], *, shots: Sequence[int] = SHOTS, seed: int = 0) -> tuple[FewShotErrors, ...]:
    """Errors of each group after some of its rows, drawn by ``seed``, were fitted as a study's trials are.

    They are fitted to predictions from profiles alone: shipped calibrations know these very sweeps.
    """
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        if case.step_seconds:
            groups.setdefault((case.row.file, case.cluster.device.name, case.stack.name), []).append(case)
    large = {key: members for key, members in groups.items() if len(members) >= max(shots) + LEAST_REST}
    return tuple(_replayed(*key, members, shots, seed) for key, members in sorted(large.items()))


def _replayed(source: str, device: str, stack: str, cases: list[Case], shots: Sequence[int], seed: int) -> FewShotErrors:
    drawn = random.Random(seed).sample([observation(case) for case in cases], len(cases))
    rest = drawn[max(shots) :]
    errors = {count: _errors(rest, fitted(drawn[:count], NEUTRAL, OF_TRIALS).calibration if count else NEUTRAL) for count in shots}
    return FewShotErrors(
        source=source,
        device=device,
        stack=stack,
        rows=len(cases),
        mape={count: float(found.mean()) for count, found in errors.items()},
        median_ape={count: float(np.median(found)) for count, found in errors.items()},
    )


def _errors(rest: Sequence[Observation], calibration: Calibration) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Relative errors of the steps, the same rows whatever calibrated."""
    found = np.zeros(len(rest))
    for group in tables(rest):
        seconds = group.step(calibration).seconds
        for at, index in enumerate(group.members):
            found[index] = abs(float(seconds[at]) / (rest[index].step_seconds or 1.0) - 1)
    return found
