"""Refit: calibrations by software stack and device from published rows, held-out groups left aside."""

from collections.abc import Sequence

from strategist.accuracy.case import Case
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import FACTORS, PECULIAR, fitted
from strategist.cost.observation import Observation, tables
from strategist.cost.shipped import ANY_STACK, FittedTo, kin_name

LEAST_ROWS = 4
"""Rows of a stack on a device from which factors of its own are fitted."""

MOST_TABLES = 60
"""Tables of rows alike, of each stack, that factors are fitted to, evenly taken: a large sweep does not outvote the others."""


def refit(cases: Sequence[Case]) -> tuple[FittedTo, ...]:
    """Factors for each device: of all stacks that ran on it, of kin, and of each stack, each held to those before it."""
    found: list[FittedTo] = []
    for device in sorted({case.cluster.device.name for case in cases}):
        here = [case for case in cases if case.cluster.device.name == device and case.step_seconds]
        whole = _fit(found, ANY_STACK, device, here, NEUTRAL)
        for kin in sorted({case.stack.kin for case in here}):
            alike = [case for case in here if case.stack.kin == kin]
            common = whole if len(alike) == len(here) else _fit(found, kin_name(kin), device, alike, whole)
            for stack in sorted({case.stack.name for case in alike}):
                own = [case for case in alike if case.stack.name == stack]
                if len(own) < len(alike):  # else what they have in common is their own
                    _fit(found, stack, device, own, common)
    return tuple(found)


def _fit(found: list[FittedTo], name: str, device: str, cases: Sequence[Case], prior: Calibration) -> Calibration:
    """Adds the factors of some cases to those found, where they are enough, and returns the best known."""
    stacks = sorted({case.stack.name for case in cases})
    chosen = [item for stack in stacks for item in _sample(cases, stack)]
    if len(chosen) < LEAST_ROWS:
        return prior
    free = tuple(factor for factor in FACTORS if factor not in PECULIAR or len(stacks) == 1)
    result = fitted(chosen, prior, free)
    found.append(
        FittedTo(
            stack=name, device=device, calibration=result.calibration, errors=result.errors, noise=result.noise, rows=len(chosen)
        )
    )
    return result.calibration


def _sample(cases: Sequence[Case], stack: str) -> list[Observation]:
    observed = [observation(case) for case in cases if case.stack.name == stack]
    alike = tables(observed)
    return [observed[index] for group in alike[:: -(-len(alike) // MOST_TABLES)] for index in group.members]


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
