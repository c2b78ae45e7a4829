"""Refit: calibrations by software stack and device from published rows, held-out groups left aside."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log, sqrt
from statistics import median

from strategist.accuracy.case import Case
from strategist.accuracy.observed import comparable_memory_bytes, observation
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import FACTORS, PECULIAR, fitted
from strategist.cost.observation import Observation, tables
from strategist.cost.shipped import ANY_STACK, FittedTo, kin_name

LEAST_ROWS = 4
"""Rows of a stack on a device from which factors of its own are fitted."""

NORMAL = 1.4826
"""Standard deviations to a median of absolute values, in a normal distribution."""

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


def common_factors(cases: Sequence[Case], device: str, kin: str) -> Calibration:
    """Factors of a device, and there of stacks that are kin, as ``refit`` finds them."""
    here = [case for case in cases if case.cluster.device.name == device and case.step_seconds]
    whole = _fit([], ANY_STACK, device, here, NEUTRAL)
    return _fit([], kin_name(kin), device, [case for case in here if case.stack.kin == kin], whole)


def own_factors(cases: Sequence[Case], stack: str, device: str, common: Calibration) -> Calibration:
    """Those of a stack there, held to what is common."""
    here = [case for case in cases if case.cluster.device.name == device and case.step_seconds]
    return _fit([], stack, device, here, common)


def _fit(found: list[FittedTo], name: str, device: str, cases: Sequence[Case], prior: Calibration) -> Calibration:
    """Adds the factors of some cases to those found, where they are enough, and returns the best known."""
    stacks = sorted({case.stack.name for case in cases})
    chosen = [item for stack in stacks for item in _sample(cases, stack)]
    if len(chosen) < LEAST_ROWS:
        return prior
    free = tuple(factor for factor in FACTORS if factor not in PECULIAR or len(stacks) == 1)
    result = fitted(chosen, prior, free, same_links=prior is not NEUTRAL)
    found.append(
        FittedTo(
            stack=name, device=device, calibration=result.calibration, errors=result.errors, noise=result.noise, rows=len(chosen)
        )
    )
    return result.calibration


def _sample(cases: Sequence[Case], stack: str) -> list[Observation]:
    """Of a stack's rows, some tables. A layout ten times slower than the best of its sweep counts a tenth in the squared error: it
    matters more what is right near the best."""
    own = [case for case in cases if case.stack.name == stack and case.step_seconds]
    best: dict[tuple[str, ...], float] = {}
    for case in own:
        best[case.sweep] = min(best.get(case.sweep, inf), case.step_seconds or inf)
    observed = [replace(observation(case), weight=sqrt(best[case.sweep] / (case.step_seconds or inf))) for case in own]
    alike = tables(observed)
    return [observed[index] for group in alike[:: -(-len(alike) // MOST_TABLES)] for index in group.members]


def memory_spreads(cases: Sequence[Case]) -> dict[str, float]:
    """How far measured memory is spread around the prediction, as a logarithm: for each stack, for those of kin, and for all."""
    errors: dict[str, list[float]] = {}
    for group in tables([observation(case) for case in cases]):
        priced = group.priced()
        for at, index in enumerate(group.members):
            case = cases[index]
            if case.peak_memory_bytes:
                error = log(case.peak_memory_bytes / comparable_memory_bytes(priced, case, at))
                for name in (case.stack.name, kin_name(case.stack.kin), ANY_STACK):
                    errors.setdefault(name, []).append(error)
    return {name: NORMAL * median(map(abs, each)) for name, each in sorted(errors.items()) if len(each) >= LEAST_ROWS}
