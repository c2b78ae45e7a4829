"""Refit: calibrations by software stack, fitted to published rows of all devices; the rates of a device are in its profile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, log, sqrt
from statistics import median

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.case_columns import CaseColumns, columns_of
from strategist.accuracy.case_observation import comparable_memory_bytes, observation
from strategist.accuracy.grouping import grouped
from strategist.accuracy.stalled_steps import regular_step_probability
from strategist.contract.measurement import Measurement
from strategist.contract.plan import Plan
from strategist.contract.stack import NATIVE
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Floats
from strategist.cost.fit import STACK_FACTORS, fitted_steps
from strategist.cost.observation import tables
from strategist.cost.price import price
from strategist.cost.shipped_calibrations import ANY_STACK, PUBLISHED_NATIVE, FittedTo, family_name
from strategist.expr.columns import row_of, table
from strategist.profiles.history import Record
from strategist.profiles.stacks import stack_of_plan

MIN_ROWS = 4
"""Minimum number of rows of a stack for factors of its own."""

MAD_TO_STANDARD_DEVIATION = 1.4826
"""Standard deviation over the median of absolute values, for a normal distribution."""

MIN_SPREAD = 0.1
"""Spread of a source below which it gets no more weight: releases and clusters differ by this much anyway."""

REPEATS = 2
"""Number of fits after the first one, each with new weights."""

MAX_ROWS, MAX_ROWS_IN_COMMON = 20.0, 2.0
"""Maximum number of rows that a source counts for in the fit of its stack, and in a fit of several stacks: its rows share one
cluster and one release, so more of them add little information.
"""


def refit(columns: CaseColumns, start: Mapping[str, Calibration] | None = None) -> tuple[FittedTo, ...]:
    """Factors of all stacks, of each family of stacks, and of each stack; each fit uses the one before it as its prior. No fit
    depends on the device.

    Args:
        start: calibrations by name at which the searches begin, for example from a fit to nearly the same rows.
    """
    fits: list[FittedTo] = []
    timed = _timed(columns)
    all_stacks = _fit(fits, ANY_STACK, timed, NEUTRAL, start)
    for family in sorted({case.stack.family for case in timed.cases}):
        same_family = timed.take(position for position, case in enumerate(timed.cases) if case.stack.family == family)
        common = _fit(fits, family_name(family), same_family, all_stacks, start)
        for stack in sorted({case.stack.name for case in same_family.cases}):
            stack_cases = same_family.take(position for position, case in enumerate(same_family.cases) if case.stack.name == stack)
            _fit(fits, stack, stack_cases, common, start)
    return tuple(fits)


KERNELS = ("matmul", "attention", "memory_bound")
"""Parts of a step that stand for kernels of one kind."""

UNPRICED_PARTS = ("data", "other")
"""Parts of a measured step that the price does not contain: loading batches, and waiting of the host for a result."""


def native(fits: Sequence[FittedTo], trials: Sequence[Record]) -> FittedTo:
    """The fit that prices plans of the native back end.

    It has the factors of the stack ``PUBLISHED_NATIVE``, which uses the same APIs. Medians of ``trials`` on GPUs replace its
    factors of kernels and its overhead per step and micro-batch, because the overhead of another framework includes that
    framework's logs and checks. The factor of matmuls is at least 1: a short trial can run faster than the device's curve, which
    holds for hours under a power limit.
    """
    published = next(item for item in fits if item.stack == PUBLISHED_NATIVE)
    timed = [(record.plan, _unprofiled(record.measurement, time)) for record in trials if (time := record.measurement.time)]
    if not timed:
        return replace(published, stack=NATIVE.name)
    unpriced_seconds = median(sum(time.get(part, 0.0) for part in UNPRICED_PARTS) for _, time in timed)
    slowdown = {part: median(ratios) for part, ratios in _measured_to_priced_kernels(timed).items()}
    compute = max(slowdown["matmul"], 1.0)
    calibration = replace(
        published.calibration,
        compute=compute,
        attention=slowdown["attention"] / compute,
        memory_bound=slowdown["memory_bound"] / compute,
        overhead_seconds=unpriced_seconds,
        update_seconds=0.0,
        micro_batch_seconds=0.0,
    )
    idle_seconds = max(median(_unpriced_idle_seconds(timed, calibration)), 0.0)
    return replace(published, stack=NATIVE.name, calibration=replace(calibration, micro_batch_seconds=idle_seconds))


def _unprofiled(measurement: Measurement, time: Mapping[str, float]) -> dict[str, float]:
    """Seconds of a step's parts; the host is slower under the profiler, and the device waits longer for it."""
    profiled, step = measurement.profiled_step_seconds, measurement.step_seconds
    added_seconds = profiled - step if profiled and step else 0.0
    return {**time, "launch": time["launch"] - added_seconds}


def _measured_to_priced_kernels(trials: Sequence[tuple[Plan, dict[str, float]]]) -> dict[str, list[float]]:
    """Measured over priced seconds of each kind of kernel, of plans whose states all lie on the device."""
    ratios: dict[str, list[float]] = {part: [] for part in KERNELS}
    for time, priced in _measured_and_priced(trials, NEUTRAL):
        for part in KERNELS:
            ratios[part].append(time[part] / priced[part])
    return ratios


def _unpriced_idle_seconds(trials: Sequence[tuple[Plan, dict[str, float]]], calibration: Calibration) -> list[float]:
    """Seconds of a micro-batch in which the device waits for the host beyond the price, of plans whose states all lie on it."""
    times = [plan.accumulation for plan, _ in trials if plan.candidate.knobs.offload == "none"]
    found = zip(times, _measured_and_priced(trials, calibration), strict=True)
    return [(time["launch"] - priced["launch"]) / micro_batches for micro_batches, (time, priced) in found]


def _measured_and_priced(
    trials: Sequence[tuple[Plan, dict[str, float]]], calibration: Calibration
) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Seconds of the parts of a step, measured and priced, of plans whose states all lie on the device."""
    for plan, time in trials:
        if plan.candidate.knobs.offload == "none":
            columns = table([row_of(plan.candidate, plan.accumulation)])
            priced = price(plan.model, plan.cluster, plan.workload, columns, calibration, stack_of_plan(plan)).time
            yield time, {part: float(seconds[0]) for part, seconds in priced.items()}


def common_factors(cases: Sequence[Case], family: str, start: Mapping[str, Calibration] | None = None) -> Calibration:
    """Factors of the stacks of one family, as ``refit`` finds them."""
    timed = columns_of([case for case in cases if case.fits_times])
    all_stacks = _fit([], ANY_STACK, timed, NEUTRAL, start)
    same_family = timed.take(position for position, case in enumerate(timed.cases) if case.stack.family == family)
    return _fit([], family_name(family), same_family, all_stacks, start)


def stack_factors(cases: Sequence[Case], common: Calibration) -> Calibration:
    """Factors fitted to one stack's rows, with ``common`` as the prior."""
    timed = [case for case in cases if case.fits_times]
    return _fit([], timed[0].stack.name, columns_of(timed), common, None) if timed else common


def _timed(columns: CaseColumns) -> CaseColumns:
    return columns.take(position for position, case in enumerate(columns.cases) if case.fits_times)


def _fit(
    fits: list[FittedTo], name: str, columns: CaseColumns, prior: Calibration, start: Mapping[str, Calibration] | None
) -> Calibration:
    """Factors fitted to the cases and added to ``fits``; the ``prior`` if there are too few cases.

    The fit is repeated with new weights, from the residuals of each source in the last fit and the probability that a row stalled.
    """
    cases, inputs, measured = columns.cases, columns.inputs, columns.measured
    if len(cases) < MIN_ROWS:
        return prior
    sources = _by_source(cases)
    weights = _weights(cases, sources, MAX_ROWS if len({case.stack.name for case in cases}) == 1 else MAX_ROWS_IN_COMMON)
    result = fitted_steps(inputs, measured, weights, prior, STACK_FACTORS, (start or {}).get(name))
    for _ in range(REPEATS):
        row_trust = _trust(sources, np.log(columns.seconds(result.calibration) / measured))
        result = fitted_steps(inputs, measured, weights * row_trust, prior, STACK_FACTORS, result.calibration)
    devices = tuple(sorted({case.cluster.device.name for case in cases}))
    fits.append(
        FittedTo(
            stack=name, devices=devices, calibration=result.calibration, errors=result.errors, noise=result.noise, rows=len(cases)
        )
    )
    return result.calibration


def _by_source(cases: Sequence[Case]) -> list[list[int]]:
    """Positions of the rows of each source and stack."""
    positions = grouped(range(len(cases)), lambda position: (cases[position].row.file, cases[position].stack.name))
    return [positions[key] for key in sorted(positions)]


def _weights(cases: Sequence[Case], sources: Sequence[Sequence[int]], max_rows: float) -> Floats:
    """Weight of each row. A layout ten times slower than the best of its sweep counts a tenth in the squared error, because
    accuracy matters most near the best. All rows of a source and stack together count as ``max_rows`` rows at most.
    """
    best: dict[tuple[str, ...], float] = {}
    for case in cases:
        best[case.sweep] = min(best.get(case.sweep, inf), case.step_seconds or inf)
    weights = np.array([sqrt(best[case.sweep] / (case.step_seconds or inf)) for case in cases])
    for source in sources:
        weights[source] *= min(1.0, sqrt(max_rows / len(source)))
    return weights


def _trust(sources: Sequence[Sequence[int]], errors: Floats) -> Floats:
    """Weight of each row from the last fit's residuals: by the probability that it did not stall, and by the inverse spread of
    its source relative to that of the best explained source. A network without a profile should influence the fit little.
    """
    regular = [regular_step_probability(-errors[source]) for source in sources]
    spreads = [_spread(errors[source], regular_probability) for source, regular_probability in zip(sources, regular, strict=True)]
    trust = np.zeros(len(errors))
    for source, regular_probability, spread in zip(sources, regular, spreads, strict=True):
        trust[source] = np.sqrt(regular_probability) * min(spreads) / spread
    return trust


def _spread(errors: Floats, regular_probability: Floats) -> float:
    """Spread of the rows of a source that did not stall."""
    return max(MAD_TO_STANDARD_DEVIATION * float(np.median(np.abs(errors[regular_probability > 0.5]))), MIN_SPREAD)


def memory_spreads(cases: Sequence[Case]) -> dict[str, float]:
    """Spread of log(measured / predicted memory): for each stack, each family, and all stacks."""
    errors: dict[str, list[float]] = {}
    for group in tables([observation(case) for case in cases]):
        priced = group.priced()
        for row, index in enumerate(group.members):
            case = cases[index]
            if case.peak_memory_bytes:
                error = log(case.peak_memory_bytes / comparable_memory_bytes(priced, case, row))
                for name in (case.stack.name, family_name(case.stack.family), ANY_STACK):
                    errors.setdefault(name, []).append(error)
    return {
        name: MAD_TO_STANDARD_DEVIATION * median(map(abs, stack_errors))
        for name, stack_errors in sorted(errors.items())
        if len(stack_errors) >= MIN_ROWS
    }
