"""Refit: calibrations by software stack and device from published rows, held-out groups left aside."""

from collections.abc import Sequence

from strategist.accuracy.case import Case
from strategist.cost.calibration import NEUTRAL
from strategist.cost.fit import Fitted, fitted
from strategist.cost.observation import Observation
from strategist.cost.shipped import ANY_STACK, FittedTo

LEAST_ROWS = 4
"""Rows of a stack on a device from which factors of its own are fitted."""

MOST_ROWS = 200
"""Rows of one stack that count for a device's common factors, evenly taken: a large sweep does not outvote the others."""


def refit(cases: Sequence[Case]) -> tuple[FittedTo, ...]:
    """Factors for each device, from all stacks that ran on it; then for each stack there, held to its device's."""
    found = []
    for device in sorted({case.cluster.device.name for case in cases}):
        here = [case for case in cases if case.cluster.device.name == device and case.step_seconds]
        by_stack = {name: [case for case in here if case.stack.name == name] for name in sorted({case.stack.name for case in here})}
        common = [case for rows in by_stack.values() for case in rows[:: max(1, len(rows) // MOST_ROWS)]]
        if len(common) < LEAST_ROWS:
            continue
        whole = fitted([observation(case) for case in common], NEUTRAL)
        found.append(_named(ANY_STACK, device, whole, len(common)))
        for stack, rows in by_stack.items():
            if len(rows) >= LEAST_ROWS and len(by_stack) > 1:
                found.append(_named(stack, device, fitted([observation(case) for case in rows], whole.calibration), len(rows)))
    return tuple(found)


def observation(case: Case) -> Observation:
    """A case as something to fit to: its time. What a source says of memory is of many kinds and fits nothing."""
    return Observation(
        model=case.model,
        cluster=case.cluster,
        workload=case.workload,
        candidate=case.candidate,
        accumulation=case.accumulation,
        stack=case.stack,
        step_seconds=case.step_seconds,
    )


def _named(stack: str, device: str, found: Fitted, rows: int) -> FittedTo:
    return FittedTo(stack=stack, device=device, calibration=found.calibration, errors=found.errors, noise=found.noise, rows=rows)
