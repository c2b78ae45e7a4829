"""Cases with the step inputs of all of them as columns, so that one call prices all steps by any calibration."""

from collections.abc import Iterable, Sequence
from math import nan

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.case_observation import observation
from strategist.cost.calibration import Calibration
from strategist.cost.candidate_arrays import Floats
from strategist.cost.observation import inputs_of, tables
from strategist.cost.shipped_calibrations import Shipped, calibration_for
from strategist.cost.step import step
from strategist.cost.step_inputs import StepInputs, take
from strategist.frozen import frozen


@frozen
class CaseColumns:
    """Cases of any sources, and their step inputs in the same order."""

    cases: tuple[Case, ...]
    inputs: StepInputs

    @property
    def measured(self) -> Floats:
        """Seconds of the steps as published; NaN where not measured."""
        return np.array([case.step_seconds or nan for case in self.cases])

    def take(self, index: Iterable[int]) -> "CaseColumns":
        """The cases at these positions."""
        positions = list(index)
        return CaseColumns(cases=tuple(self.cases[position] for position in positions), inputs=take(self.inputs, positions))

    def seconds(self, calibration: Calibration) -> Floats:
        """Predicted seconds of the steps by one calibration; link rates are those of the profiles."""
        return step(self.inputs, calibration.factors).seconds

    def seconds_by(self, fits: Shipped) -> Floats:
        """Predicted seconds, each by the calibration of its stack."""
        seconds = np.zeros(len(self.cases))
        names = np.array([case.stack.name for case in self.cases])
        for name in set(names.tolist()):
            positions = np.flatnonzero(names == name)
            stack_cases = self.take(positions.tolist())
            seconds[positions] = stack_cases.seconds(calibration_for(stack_cases.cases[0].stack, fits))
        return seconds


def columns_of(cases: Sequence[Case]) -> CaseColumns:
    """The columns of some cases."""
    return CaseColumns(cases=tuple(cases), inputs=inputs_of(tables([observation(case) for case in cases])))
