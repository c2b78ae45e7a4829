"""Fit of a calibration to measurements, with standard errors."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from strategist.contract.measurement import MODELLED_PARTS, RAN, Kind, Measurement, Outcome
from strategist.cost.calibration import NEUTRAL, Calibration, Factors, stacked
from strategist.cost.candidate_arrays import Floats, Parts
from strategist.cost.memory_timeline import TRANSIENT_PARTS
from strategist.cost.observation import Observation, Table, tables
from strategist.cost.step import first_rank_time, step
from strategist.cost.step_inputs import StepInputs
from strategist.frozen import frozen
from strategist.profiles.history import Record
from strategist.profiles.stacks import stack_of_plan

LOSS_SCALE = 0.1
"""Scale of the robust loss: deviation of a measured step from a correct prediction (natural logarithm) beyond which an
observation loses weight.
"""

BOUND_MARGIN = 1e-6
"""Distance below its bound to which a factor is searched, because some searches start at a bound and the solver stays inside."""

DIFFERENCE_STEP = 1.5e-8
"""Step of forward differences, in units of a factor's spread: the square root of a double's precision."""

PRIOR_OBSERVATIONS = 4
"""Number of observations that the prior counts for in the range of predictions."""

HOST_BOUND_START = 1.5
"""Start of a second search, in spreads of ``launch`` and ``kernels``: a host so slow that devices wait for it."""

COMMUNICATION_WEIGHT = 0.5
"""Weight of a measured communication ratio relative to a measured step."""


@frozen
class Factor:
    """Prior of a factor.

    spread: standard deviation around the prior: of the logarithm if ``scaled``, else in its own unit, or with ``seconds`` in
        typical steps.
    minimum, maximum: physical limits.
    """

    spread: float
    scaled: bool = True
    minimum: float = 0.0
    maximum: float = math.inf
    seconds: bool = False


FACTORS: dict[str, Factor] = {
    "compute": Factor(spread=0.5),
    "attention": Factor(spread=0.3),
    "memory_bound": Factor(spread=0.3),
    "small": Factor(spread=0.1, scaled=False),
    "launch": Factor(spread=1.5, maximum=2.0),
    "kernels": Factor(spread=0.7),
    "routing": Factor(spread=0.7),
    "communication": Factor(spread=0.7),
    "inter": Factor(spread=0.5),
    "latency": Factor(spread=0.7),
    "tensor": Factor(spread=0.5, maximum=1.0),
    "expert": Factor(spread=0.5, maximum=1.0),
    "host": Factor(spread=0.5),
    "wait": Factor(spread=0.03, scaled=False),
    "overhead_seconds": Factor(spread=0.05, scaled=False, seconds=True),
    "update_seconds": Factor(spread=0.0006, scaled=False),
    "micro_batch_seconds": Factor(spread=0.01, scaled=False, seconds=True),
}
"""All factors of a step, which a fit may change."""

TRIAL_FACTORS = {name: FACTORS[name] for name in ("compute", "communication", "launch", "overhead_seconds")}
"""Factors that a few trials of one workload can separate."""

STACK_FACTORS: dict[str, Factor] = {
    "compute": Factor(spread=0.1, minimum=0.85),
    "attention": Factor(spread=0.1, minimum=0.5),
    "memory_bound": Factor(spread=0.15, minimum=0.85),
    "kernels": Factor(spread=0.5, minimum=0.5, maximum=3.0),
    "routing": Factor(spread=0.5, minimum=0.5, maximum=3.0),
    "tensor": Factor(spread=0.3, minimum=0.1, maximum=1.0),
    "expert": Factor(spread=0.3, minimum=0.1, maximum=1.0),
    "host": Factor(spread=0.2, minimum=0.8),
    "wait": Factor(spread=0.01, scaled=False, maximum=0.02),
    "update_seconds": Factor(spread=0.0006, scaled=False, maximum=0.003),
    "micro_batch_seconds": Factor(spread=0.005, scaled=False, maximum=0.02),
}
"""Factors that belong to a stack on any device. Links are excluded: profiles hold their measured rates, as they do for devices,
so these factors stay near 1.
"""


@frozen
class Fitted:
    """A fitted calibration; its ``step_range`` is the 90 % interval of the residuals, with a margin for few observations.

    errors: standard error of each fitted factor: of its logarithm if it is scaled, else in its own unit.
    noise: standard deviation of the residuals, the logarithm of measured over predicted steps.
    """

    calibration: Calibration
    errors: dict[str, float]
    noise: float


def fit(records: Sequence[Record], prior: Calibration = NEUTRAL, start: Calibration | None = None) -> Calibration:
    """The calibration of a study's trials: of real ones, and of shadow trials what they measured (memory and computation, so that
    the factors of communication stay). Without records the prior is returned. The search begins at ``start``, if given.
    """
    observed = [_observation(record) for record in records if record.measurement.kind in (Kind.REAL, Kind.SHADOW)]
    usable = [item for item in observed if item.out_of_memory or item.step_seconds]
    return fitted(usable, prior, TRIAL_FACTORS, start=start).calibration.within(usable[0].cluster) if usable else prior


def _observation(record: Record) -> Observation:
    plan, measurement = record.plan, record.measurement
    completed = measurement.outcome in RAN
    return Observation(
        model=plan.model,
        cluster=plan.cluster,
        workload=plan.workload,
        candidate=plan.candidate,
        stack=stack_of_plan(plan),
        accumulation=plan.accumulation,
        step_seconds=_measured_seconds(measurement) if completed else None,
        peak_memory_bytes=max(measurement.peak_memory_bytes) if completed and measurement.peak_memory_bytes else None,
        exposed_comm_ratio=measurement.exposed_comm_ratio if completed else None,
        out_of_memory=measurement.outcome is Outcome.OOM,
        alone=measurement.kind is Kind.SHADOW,
    )


def _measured_seconds(measurement: Measurement) -> float | None:
    """Measured seconds of the step; of a shadow trial without its modelled parts."""
    if measurement.kind is not Kind.SHADOW or measurement.time is None:
        return measurement.step_seconds
    return sum(seconds for name, seconds in measurement.time.items() if name not in MODELLED_PARTS)


Predict = Callable[[Sequence[Calibration]], tuple[Floats, Floats]]
"""Step seconds and exposed communication ratio by several calibrations: (calibrations, observations) each."""


def fitted(
    observations: Sequence[Observation],
    prior: Calibration = NEUTRAL,
    free: Mapping[str, Factor] = FACTORS,
    *,
    start: Calibration | None = None,
) -> Fitted:
    """Fits the factors of ``free`` to measured steps by relative error, regularised towards ``prior``.

    The prior counts as one observation per factor (ridge); outliers have a soft L1 loss (arXiv 1701.03077). The search begins at
    ``start``, if given. An out-of-memory bounds the memory factor from below.
    """
    groups = tables(observations)
    memory = _memory_factor(observations, groups, prior)
    timed = any(item.step_seconds for item in observations)
    base = replace(prior, memory=memory, trials=len(observations))
    if not timed:
        return Fitted(calibration=base, errors={}, noise=0.0)
    measured = np.array([item.step_seconds or np.nan for item in observations])
    weights = np.array([item.weight for item in observations])
    exposed = np.array([np.nan if item.exposed_comm_ratio is None else item.exposed_comm_ratio for item in observations])
    return _step_factors(_predict(groups, len(observations)), measured, weights, exposed, base, free, start)


def fitted_steps(
    inputs: StepInputs,
    step_seconds: Floats,
    weights: Floats,
    prior: Calibration,
    free: Mapping[str, Factor],
    start: Calibration | None = None,
) -> Fitted:
    """Like :func:`fitted`, for steps whose inputs exist already; no factor of ``free`` acts on links."""

    def predict(calibrations: Sequence[Calibration]) -> tuple[Floats, Floats]:
        seconds = step(inputs, stacked(calibrations)).seconds
        return seconds, np.full_like(seconds, np.nan)

    base = replace(prior, trials=inputs.rows)
    return _step_factors(predict, step_seconds, weights, np.full(inputs.rows, np.nan), base, free, start)


def _predict(groups: Sequence[Table], count: int) -> Predict:
    """The prediction function of observations; inputs are computed once for all calibrations with equal link factors."""
    known: dict[tuple[float, float, float], list[tuple[Sequence[int], bool, StepInputs]]] = {}

    def inputs(calibration: Calibration) -> list[tuple[Sequence[int], bool, StepInputs]]:
        if calibration.link_factors not in known:
            known.clear()
            known[calibration.link_factors] = [(group.members, group.common.alone, group.inputs(calibration)) for group in groups]
        return known[calibration.link_factors]

    def predict(calibrations: Sequence[Calibration]) -> tuple[Floats, Floats]:
        seconds, shares = np.ones((len(calibrations), count)), np.zeros((len(calibrations), count))
        for rows, same_links in _by_links(calibrations):
            for members, alone, columns in inputs(same_links[0]):
                time = _time(columns, stacked(same_links), alone=alone)
                cells = np.ix_(rows, members)
                seconds[cells] = sum(time.values(), start=np.zeros(1))
                shares[cells] = sum(column for name, column in time.items() if name.endswith("_communication")) / seconds[cells]
        return seconds, shares

    return predict


def _by_links(calibrations: Sequence[Calibration]) -> Iterator[tuple[list[int], list[Calibration]]]:
    """Calibrations with equal link factors, with their indices."""
    groups: dict[tuple[float, float, float], list[int]] = {}
    for index, calibration in enumerate(calibrations):
        groups.setdefault(calibration.link_factors, []).append(index)
    for indices in groups.values():
        yield indices, [calibrations[index] for index in indices]


def _time(inputs: StepInputs, factors: Factors, *, alone: bool) -> Parts:
    """Seconds of the steps by part; of ranks without peers only the parts that need none."""
    if not alone:
        return step(inputs, factors).time
    return {name: seconds for name, seconds in first_rank_time(inputs, factors).items() if name not in MODELLED_PARTS}


def _step_factors(
    predict: Predict,
    measured: Floats,
    weights: Floats,
    exposed: Floats,
    base: Calibration,
    free: Mapping[str, Factor],
    start: Calibration | None,
) -> Fitted:
    from scipy.optimize import least_squares  # slow import, needed only by a fit

    scale = np.array([_factor_scale(factor, float(np.nanmedian(measured))) for factor in free.values()])

    def calibration(steps: Floats) -> Calibration:
        changes: dict[str, Any] = {
            name: _shifted(getattr(base, name), step * unit, free[name])
            for name, step, unit in zip(free, steps, scale, strict=True)
        }
        return replace(base, **changes)

    def residuals_at(points: Floats) -> Floats:
        """Residuals at several points of the search, (points, residuals)."""
        seconds, shares = predict([calibration(point) for point in points])
        log_ratios, exposed_errors = weights * np.log(seconds / measured), shares - exposed
        timed, has_exposed = np.isfinite(measured), np.isfinite(exposed)
        return np.concatenate(
            [log_ratios[:, timed] / LOSS_SCALE, COMMUNICATION_WEIGHT / LOSS_SCALE * exposed_errors[:, has_exposed], points], axis=1
        )

    def residuals(steps: Floats) -> Floats:
        found: Floats = residuals_at(steps[None])[0]
        return found

    def jacobian(steps: Floats) -> Floats:
        """Differences, all priced at once: forward, but backward for a factor that is at its maximum."""
        point = calibration(steps)
        at_maximum = [getattr(point, name) >= factor.maximum for name, factor in free.items()]
        differences = DIFFERENCE_STEP * np.maximum(np.abs(steps), 1.0) * np.where(at_maximum, -1.0, 1.0)
        found = residuals_at(np.vstack([steps, steps + np.diag(differences)]))
        slopes: Floats = (found[1:] - found[0]).T / differences
        return slopes

    starts = [np.zeros(len(free)) if start is None else _start_point(start, base, free, scale)]
    if start is None:  # if the device hides all launches, the gradient of these factors is zero
        starts.append(np.where(np.isin(list(free), ("launch", "kernels")), HOST_BOUND_START, 0.0))
    loss = _robust_loss(len(free))
    lower = np.array(
        [-np.inf if free[name].scaled else -getattr(base, name) / unit for name, unit in zip(free, scale, strict=True)]
    )
    found = min(
        (
            least_squares(
                residuals, start, jacobian, loss=loss, bounds=(lower - BOUND_MARGIN, np.inf), ftol=1e-4, xtol=1e-3, max_nfev=30
            )
            for start in starts
        ),
        key=lambda item: float(item.cost),
    )
    errors = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac + 1e-9 * np.eye(len(free))))) * scale
    best = calibration(found.x)
    log_errors = np.log(measured / predict([best])[0][0])
    log_errors = log_errors[np.isfinite(log_errors)]
    noise = float(np.median(np.abs(log_errors))) * 1.4826
    best = replace(best, step_range=_conformal_range(log_errors, base.step_range))
    return Fitted(calibration=best, errors=dict(zip(free, map(float, errors), strict=True)), noise=noise)


def _conformal_range(log_errors: Floats, prior_range: tuple[float, float]) -> tuple[float, float]:
    """The 5th and 95th percentile for a new observation, by conformal prediction (arXiv 2107.07511, section 1); the prior range
    counts for ``PRIOR_OBSERVATIONS`` observations.
    """
    prior = np.log(np.array(prior_range))
    spread = np.concatenate([log_errors, np.repeat(prior, PRIOR_OBSERVATIONS // 2)])
    margin = 1 / (len(spread) + 1)
    low, high = np.quantile(spread, [max(0.05 - margin, 0.0), min(0.95 + margin, 1.0)])
    return float(np.exp(low)), float(np.exp(high))


def _robust_loss(factors: int):  # type: ignore[no-untyped-def]
    """Loss of squared residuals: soft L1 for observations, quadratic for the ridge, whose residuals come last."""

    def loss(squared: Floats) -> Floats:
        plain = np.arange(squared.size) >= squared.size - factors
        root = np.sqrt(1 + squared)
        value = np.where(plain, squared, 2 * (root - 1))
        first = np.where(plain, 1.0, 1 / root)
        second = np.where(plain, 0.0, -0.5 / root**3)
        return np.stack([value, first, second])

    return loss


def _factor_scale(factor: Factor, typical_seconds: float) -> float:
    return factor.spread * (typical_seconds if factor.seconds else 1.0)


def _shifted(value: float, shift: float, factor: Factor) -> float:
    changed = float(max(value, 1e-3) * np.exp(np.clip(shift, -3.0, 3.0))) if factor.scaled else max(value + float(shift), 0.0)
    return min(max(changed, factor.minimum), factor.maximum)


def _start_point(start: Calibration, base: Calibration, free: Mapping[str, Factor], scale: Floats) -> Floats:
    """Coordinates at which the search starts at ``start``: the inverse of :func:`_shifted`."""

    def step(name: str) -> float:
        start_value, base_value = getattr(start, name), getattr(base, name)
        return float(np.log(max(start_value, 1e-3) / max(base_value, 1e-3))) if free[name].scaled else start_value - base_value

    return np.array([step(name) for name in free]) / scale


def _memory_factor(observations: Sequence[Observation], groups: Sequence[Table], prior: Calibration) -> float:
    """Median memory factor of the observations; larger if a candidate that was predicted to fit ran out of memory."""
    neutral = replace(prior, memory=1.0)
    ratios, bounds = [], []
    for group in groups:
        priced = group.priced(neutral)
        transient = sum((priced.memory[name] for name in TRANSIENT_PARTS), start=np.zeros(len(group.members)))
        resident = priced.peak_memory_bytes - transient - priced.memory["allocator"]
        for row, index in enumerate(group.members):
            item = observations[index]
            if item.peak_memory_bytes and transient[row] > 0:
                ratios.append((item.peak_memory_bytes - resident[row]) / transient[row])
            if item.out_of_memory:
                transient_room = float(priced.room_bytes[row]) - float(
                    resident[row] + priced.memory["allocator"][row]
                )  # the allocator holds at least as much with more tensors
                bounds.append(transient_room / max(float(transient[row]), 1.0))
    factor = max(float(np.median(ratios)), 0.1) if ratios else prior.memory
    return max([factor, *(bound * 1.001 for bound in bounds)])
