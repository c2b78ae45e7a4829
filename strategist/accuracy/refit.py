"""Refit: calibrations by software stack from published rows, over all devices; a device's own rates lie in its profile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, log, sqrt
from statistics import median

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.observed import comparable_memory_bytes, observation
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import OF_STACKS, fitted
from strategist.cost.observation import Observation, tables
from strategist.cost.shipped import ANY_STACK, FittedTo, kin_name

LEAST_ROWS = 4
"""Rows of a stack from which factors of its own are fitted."""

NORMAL = 1.4826
"""Standard deviations to a median of absolute values, in a normal distribution."""

LEAST_SPREAD = 0.1
"""Spread of a source below which it is not trusted more: so far, releases and clusters differ anyway."""

MOST_TABLES = 24
"""Tables of rows alike that a fit takes of each stack in a source, evenly taken."""

MOST_ROWS, MOST_ROWS_IN_COMMON = 20.0, 2.0
"""Rows that a source counts for at most in the fit of its stack, and in one of several stacks: its rows share one cluster and one
release, so more of them tell no more."""


def refit(cases: Sequence[Case], start: Mapping[str, Calibration] | None = None) -> tuple[FittedTo, ...]:
    """Factors of all stacks, of each kin, and of each stack, each held to those before it; no fit knows a device.

    ``start`` has calibrations by name from which the searches begin, as of a fit to nearly the same rows.
    """
    found: list[FittedTo] = []
    timed = [case for case in cases if case.fits_times]
    whole = _fit(found, ANY_STACK, timed, NEUTRAL, start)
    for kin in sorted({case.stack.kin for case in timed}):
        alike = [case for case in timed if case.stack.kin == kin]
        common = _fit(found, kin_name(kin), alike, whole, start)
        for stack in sorted({case.stack.name for case in alike}):
            _fit(found, stack, [case for case in alike if case.stack.name == stack], common, start)
    return tuple(found)


def common_factors(cases: Sequence[Case], kin: str, start: Mapping[str, Calibration] | None = None) -> Calibration:
    """Factors of stacks that are kin, as ``refit`` finds them."""
    timed = [case for case in cases if case.fits_times]
    whole = _fit([], ANY_STACK, timed, NEUTRAL, start)
    return _fit([], kin_name(kin), [case for case in timed if case.stack.kin == kin], whole, start)


def own_factors(cases: Sequence[Case], common: Calibration) -> Calibration:
    """Those of one stack's rows, held to what is common."""
    timed = [case for case in cases if case.fits_times]
    return _fit([], timed[0].stack.name, timed, common, None) if timed else common


def _fit(
    found: list[FittedTo], name: str, cases: Sequence[Case], prior: Calibration, start: Mapping[str, Calibration] | None
) -> Calibration:
    """Adds the factors of some cases to those found, where they are enough, and returns the best known. Fitted twice: what a source
    counts for the second time goes by what the first time left of it."""
    stacks = {case.stack.name for case in cases}
    most = MOST_ROWS if len(stacks) == 1 else MOST_ROWS_IN_COMMON
    sources = [_sample(own, most) for own in _by_source(cases)]
    if sum(map(len, sources)) < LEAST_ROWS:
        return prior
    first = fitted([item for own in sources for item in own], prior, OF_STACKS, start=(start or {}).get(name))
    trusted = [item for own in _trusted(sources, first.calibration) for item in own]
    result = fitted(trusted, prior, OF_STACKS, start=first.calibration) if len(sources) > 1 else first
    devices = tuple(sorted({case.cluster.device.name for case in cases}))
    fit = FittedTo(
        stack=name, devices=devices, calibration=result.calibration, errors=result.errors, noise=result.noise, rows=len(trusted)
    )
    found.append(fit)
    return result.calibration


def _trusted(sources: Sequence[Sequence[Observation]], known: Calibration) -> list[list[Observation]]:
    """Each source weighted by the inverse of its spread around a first fit, against that of the one which is explained best: a
    sweep that stalls, or a network without a profile, is to teach others little."""
    spreads = [max(_spread(own, known), LEAST_SPREAD) for own in sources]
    return [
        [replace(item, weight=item.weight * min(spreads) / spread) for item in own]
        for own, spread in zip(sources, spreads, strict=True)
    ]


def _spread(observed: Sequence[Observation], known: Calibration) -> float:
    """The median of the logarithms by which steps are missed, as a standard deviation."""
    errors: list[float] = []
    for group in tables(observed):
        seconds = sum(group.time(known).values(), start=np.zeros(1))
        errors += [abs(log(float(seconds[at]) / (observed[index].step_seconds or inf))) for at, index in enumerate(group.members)]
    return NORMAL * median(errors)


def _by_source(cases: Sequence[Case]) -> list[list[Case]]:
    """Rows of one stack in one source together."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.row.file, case.stack.name), []).append(case)
    return [found[key] for key in sorted(found)]


def _sample(cases: Sequence[Case], most: float) -> list[Observation]:
    """Of the rows of a stack in a source, some tables. A layout ten times slower than the best of its sweep counts a tenth in the
    squared error: it matters more what is right near the best. All together count as ``most`` rows at most."""
    best: dict[tuple[str, ...], float] = {}
    for case in cases:
        best[case.sweep] = min(best.get(case.sweep, inf), case.step_seconds or inf)
    observed = [replace(observation(case), weight=sqrt(best[case.sweep] / (case.step_seconds or inf))) for case in cases]
    alike = tables(observed)
    chosen = [observed[index] for group in alike[:: -(-len(alike) // MOST_TABLES)] for index in group.members]
    share = min(1.0, sqrt(most / len(chosen)))
    return [replace(item, weight=share * item.weight) for item in chosen]


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
