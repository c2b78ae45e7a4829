"""Refit: calibrations by software stack from published rows, over all devices; a device's own rates lie in its profile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, log, sqrt
from statistics import median

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.case_columns import CaseColumns, columns_of
from strategist.accuracy.case_observation import comparable_memory_bytes, observation
from strategist.accuracy.stalled_steps import regular_step_probability
from strategist.contract.plan import Plan
from strategist.contract.stack import NATIVE
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Floats
from strategist.cost.fit import OF_STACKS, fitted_steps
from strategist.cost.observation import tables
from strategist.cost.price import price
from strategist.cost.shipped_calibrations import ANY_STACK, PUBLISHED_NATIVE, FittedTo, family_name
from strategist.expr.columns import row_of, table
from strategist.profiles.history import Record
from strategist.profiles.stacks import stack_of_plan

LEAST_ROWS = 4
"""Rows of a stack from which factors of its own are fitted."""

NORMAL = 1.4826
"""Standard deviations to a median of absolute values, in a normal distribution."""

LEAST_SPREAD = 0.1
"""Spread of a source below which it is not trusted more: so far, releases and clusters differ anyway."""

REPEATS = 2
"""Fits after the first one."""

MOST_ROWS, MOST_ROWS_IN_COMMON = 20.0, 2.0
"""Rows that a source counts for at most in the fit of its stack, and in one of several stacks: its rows share one cluster and one
release, so more of them tell no more."""


def refit(columns: CaseColumns, start: Mapping[str, Calibration] | None = None) -> tuple[FittedTo, ...]:
    """Factors of all stacks, of each family of stacks, and of each stack, each held to those before it; no fit knows a device.

    ``start`` has calibrations by name from which the searches begin, as of a fit to nearly the same rows.
    """
    found: list[FittedTo] = []
    timed = _timed(columns)
    whole = _fit(found, ANY_STACK, timed, NEUTRAL, start)
    for family in sorted({case.stack.family for case in timed.cases}):
        alike = timed.take(at for at, case in enumerate(timed.cases) if case.stack.family == family)
        common = _fit(found, family_name(family), alike, whole, start)
        for stack in sorted({case.stack.name for case in alike.cases}):
            own = alike.take(at for at, case in enumerate(alike.cases) if case.stack.name == stack)
            _fit(found, stack, own, common, start)
    return tuple(found)


KERNELS = ("matmul", "attention", "memory_bound")
"""Parts of a step that stand for kernels of one kind."""

BESIDE = ("data", "other")
"""Parts of a measured step that no part of a price stands for: batches that come, and a result that the host waits for."""


def native(fits: Sequence[FittedTo], trials: Sequence[Record]) -> FittedTo:
    """The fit that prices plans of the native back end: of the stack whose published runs stand for it, but what a step takes
    beside its parts, and how long its kernels take beside what the device's profile says, are medians of ``trials`` on GPUs. A
    framework's own logs and checks are no work of a plan. Matmuls of a short step run above the device's curve, which holds for
    hours under a power limit: no plan counts on that."""
    published = next(item for item in fits if item.stack == PUBLISHED_NATIVE)
    timed = [(record.plan, record.measurement.time) for record in trials if record.measurement.time]
    if not timed:
        return replace(published, stack=NATIVE.name)
    beside = median(sum(time.get(part, 0.0) for part in BESIDE) for _, time in timed)
    slower = {part: median(each) for part, each in _kernels_beside_price(timed).items()}
    compute = max(slower["matmul"], 1.0)
    calibration = replace(
        published.calibration,
        compute=compute,
        attention=slower["attention"] / compute,
        memory_bound=slower["memory_bound"] / compute,
        overhead_seconds=beside,
    )
    return replace(published, stack=NATIVE.name, calibration=calibration)


def _kernels_beside_price(trials: Sequence[tuple[Plan, dict[str, float]]]) -> dict[str, list[float]]:
    """Measured over priced seconds of each kind of kernel, of plans whose states all lie on the device."""
    found: dict[str, list[float]] = {part: [] for part in KERNELS}
    for plan, time in trials:
        if plan.candidate.knobs.offload == "none":
            columns = table([row_of(plan.candidate, plan.accumulation)])
            priced = price(plan.model, plan.cluster, plan.workload, columns, NEUTRAL, stack_of_plan(plan)).time
            for part in KERNELS:
                found[part].append(time[part] / float(priced[part][0]))
    return found


def common_factors(cases: Sequence[Case], family: str, start: Mapping[str, Calibration] | None = None) -> Calibration:
    """Factors of stacks of one family, as ``refit`` finds them."""
    timed = columns_of([case for case in cases if case.fits_times])
    whole = _fit([], ANY_STACK, timed, NEUTRAL, start)
    alike = timed.take(at for at, case in enumerate(timed.cases) if case.stack.family == family)
    return _fit([], family_name(family), alike, whole, start)


def own_factors(cases: Sequence[Case], common: Calibration) -> Calibration:
    """Those of one stack's rows, held to what is common."""
    timed = [case for case in cases if case.fits_times]
    return _fit([], timed[0].stack.name, columns_of(timed), common, None) if timed else common


def _timed(columns: CaseColumns) -> CaseColumns:
    return columns.take(at for at, case in enumerate(columns.cases) if case.fits_times)


def _fit(
    found: list[FittedTo], name: str, columns: CaseColumns, prior: Calibration, start: Mapping[str, Calibration] | None
) -> Calibration:
    """Adds the factors of some cases to those found, where they are enough, and returns the best known. Fitted thrice: what a row
    counts for goes by what the time before left of its source, and by whether it stalled."""
    cases, inputs, measured = columns.cases, columns.inputs, columns.measured
    if len(cases) < LEAST_ROWS:
        return prior
    sources = _by_source(cases)
    weights = _weights(cases, sources, MOST_ROWS if len({case.stack.name for case in cases}) == 1 else MOST_ROWS_IN_COMMON)
    result = fitted_steps(inputs, measured, weights, prior, OF_STACKS, (start or {}).get(name))
    for _ in range(REPEATS):
        trust = _trust(sources, np.log(columns.seconds(result.calibration) / measured))
        result = fitted_steps(inputs, measured, weights * trust, prior, OF_STACKS, result.calibration)
    devices = tuple(sorted({case.cluster.device.name for case in cases}))
    found.append(
        FittedTo(
            stack=name, devices=devices, calibration=result.calibration, errors=result.errors, noise=result.noise, rows=len(cases)
        )
    )
    return result.calibration


def _by_source(cases: Sequence[Case]) -> list[list[int]]:
    """Places of the rows of one stack in one source together."""
    found: dict[tuple[str, str], list[int]] = {}
    for at, case in enumerate(cases):
        found.setdefault((case.row.file, case.stack.name), []).append(at)
    return [found[key] for key in sorted(found)]


def _weights(cases: Sequence[Case], sources: Sequence[Sequence[int]], most: float) -> Floats:
    """What each row counts for. A layout ten times slower than the best of its sweep counts a tenth in the squared error: it
    matters more what is right near the best. All rows of a stack in a source together count as ``most`` rows at most."""
    best: dict[tuple[str, ...], float] = {}
    for case in cases:
        best[case.sweep] = min(best.get(case.sweep, inf), case.step_seconds or inf)
    weights = np.array([sqrt(best[case.sweep] / (case.step_seconds or inf)) for case in cases])
    for source in sources:
        weights[source] *= min(1.0, sqrt(most / len(source)))
    return weights


def _trust(sources: Sequence[Sequence[int]], errors: Floats) -> Floats:
    """Each row by the probability that it did not stall, and each source's rows by the inverse of the spread of those around a fit,
    against that of the one which is explained best: a network without a profile is to teach others little."""
    states = [regular_step_probability(-errors[source]) for source in sources]
    spreads = [_spread(errors[source], state) for source, state in zip(sources, states, strict=True)]
    found = np.zeros(len(errors))
    for source, state, spread in zip(sources, states, spreads, strict=True):
        found[source] = np.sqrt(state) * min(spreads) / spread
    return found


def _spread(errors: Floats, state: Floats) -> float:
    """The spread of the rows of a source that did not stall."""
    return max(NORMAL * float(np.median(np.abs(errors[state > 0.5]))), LEAST_SPREAD)


def memory_spreads(cases: Sequence[Case]) -> dict[str, float]:
    """Spread of measured memory around the prediction, as a logarithm: for each stack, for those of one family, and for all."""
    errors: dict[str, list[float]] = {}
    for group in tables([observation(case) for case in cases]):
        priced = group.priced()
        for at, index in enumerate(group.members):
            case = cases[index]
            if case.peak_memory_bytes:
                error = log(case.peak_memory_bytes / comparable_memory_bytes(priced, case, at))
                for name in (case.stack.name, family_name(case.stack.family), ANY_STACK):
                    errors.setdefault(name, []).append(error)
    return {name: NORMAL * median(map(abs, each)) for name, each in sorted(errors.items()) if len(each) >= LEAST_ROWS}
