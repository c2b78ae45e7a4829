"""Fit: a calibration from measured plans."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.memory import TRANSIENT
from strategist.cost.price import price
from strategist.cost.view import Floats
from strategist.expr.columns import row_of, table
from strategist.profiles.history import Record

STEP_FACTORS = ("compute", "communication", "launch", "overhead_seconds")
PRIOR_WEIGHT = 0.05
"""Weight of the prior's factors against one measured step: a few trials outweigh it, none of them alone by much."""

COMMUNICATION_WEIGHT = 0.5
"""Weight of a measured share of communication against a measured step."""


@dataclass(frozen=True, kw_only=True)
class _Features:
    """Neutral predictions for one measured plan: seconds by what a factor stretches, bytes that stay or come and go, and what the
    allocator reserves above those."""

    compute: float
    communication: float
    launch: float
    static_bytes: float
    transient_bytes: float
    allocator_bytes: float
    measurement: Measurement
    capacity_bytes: float


def fit(records: Sequence[Record], prior: Calibration = NEUTRAL) -> Calibration:
    """Factors that bring neutral predictions closest to the measured steps, in relative error, held to ``prior`` by a ridge.

    Only real trials count. An out-of-memory bounds the memory factor from below. Without records the prior is returned.
    """
    real = [_features(record.plan, record.measurement) for record in records if record.measurement.kind is Kind.REAL]
    timed = [item for item in real if item.measurement.outcome is Outcome.OK and item.measurement.step_seconds]
    short = [item for item in real if item.measurement.outcome is Outcome.OOM]
    if not timed and not short:
        return prior
    factors = _step_factors(timed, prior) if timed else {name: getattr(prior, name) for name in STEP_FACTORS}
    return replace(prior, **factors, memory=_memory_factor(timed, short, prior), trials=len(timed) + len(short))


def _features(plan: Plan, measurement: Measurement) -> _Features:
    columns = table([row_of(plan.candidate, plan.accumulation)])
    estimate = price(plan.model, plan.cluster, plan.workload, columns).estimate(0)
    time, memory = estimate.time, estimate.memory
    transient = sum(float(getattr(memory, name)) for name in TRANSIENT)
    return _Features(
        compute=time.total - time.exposed_communication - time.launch - time.offload,
        communication=time.exposed_communication,
        launch=time.launch,
        static_bytes=memory.allocated - transient,
        transient_bytes=transient,
        allocator_bytes=memory.allocator,
        measurement=measurement,
        capacity_bytes=estimate.capacity_bytes,
    )


def _step_factors(timed: Sequence[_Features], prior: Calibration) -> dict[str, float]:
    """Non-negative least squares by dropping what turns negative; few unknowns, so the plain way is fast enough."""
    rows, targets = [], []
    for item in timed:
        seconds = float(item.measurement.step_seconds or 0.0)
        rows.append([item.compute / seconds, item.communication / seconds, item.launch / seconds, 1 / seconds])
        targets.append(1.0)
        exposed = item.measurement.exposed_comm_ratio
        if exposed is not None and item.communication > 0:
            rows.append([0.0, COMMUNICATION_WEIGHT * item.communication / seconds, 0.0, 0.0])
            targets.append(COMMUNICATION_WEIGHT * exposed)
    start = np.array([getattr(prior, name) for name in STEP_FACTORS])
    typical = float(np.median([item.measurement.step_seconds or 0.0 for item in timed]))
    scale = np.array([1.0, 1.0, 3.0, 0.3 * typical])  # how far each may stray: overhead least, it explains nothing
    ridge = np.sqrt(PRIOR_WEIGHT) * np.diag(1 / scale)
    matrix = np.vstack([np.array(rows), ridge])
    target = np.concatenate([targets, ridge @ start])
    found = _non_negative(matrix, target)
    return {name: float(value) for name, value in zip(STEP_FACTORS, found, strict=True)}


def _non_negative(matrix: Floats, target: Floats) -> Floats:
    free = np.ones(matrix.shape[1], dtype=bool)
    found = np.zeros(matrix.shape[1])
    while free.any():
        found = np.zeros(matrix.shape[1])
        found[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        if (found >= 0).all():
            break
        free &= found > 0
    return found


def _memory_factor(timed: Sequence[_Features], short: Sequence[_Features], prior: Calibration) -> float:
    """The median of what the trials allocated; more where a plan predicted to fit ran out of memory, which reserved bytes fill."""
    shown = [
        (max(item.measurement.peak_memory_bytes) - item.static_bytes) / item.transient_bytes
        for item in timed
        if item.measurement.peak_memory_bytes and item.transient_bytes > 0
    ]
    factor = max(float(np.median(shown)), 0.1) if shown else prior.memory
    moving = [(item.capacity_bytes - item.static_bytes, item.transient_bytes + item.allocator_bytes) for item in short]
    bounds = [room / reserved for room, reserved in moving if reserved > 0]
    return max([factor, *(bound * 1.001 for bound in bounds)])
