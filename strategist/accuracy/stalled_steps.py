"""Stalled steps: separates published steps that waited for a network or a busy machine from regular ones."""

from collections.abc import Sequence
from math import log

import numpy as np

from strategist.accuracy.error_metrics import PricedCase
from strategist.accuracy.grouping import grouped
from strategist.cost.candidate_arrays import Floats

MIN_ROWS = 20
"""Minimum number of rows of a source for separating the two states."""

MIN_SPREAD, MAX_SPREAD = 0.1, 0.25
"""Limits of the spread of regular steps around their centre, as a logarithm."""

STALL_LOG_RATIO = 1.0
"""Mode of log(stalled / regular step time)."""

MAX_ITERATIONS = 100
"""Iterations of expectation and maximisation; 30 are enough for all published sources."""


def regular_step_probability(errors: Floats) -> Floats:
    """Probability that each step of one source did not stall.

    A step can wait for things that its stack does not control, so measured steps have a tail on the slow side only. They are
    modelled as a mixture of regular steps, with a normal distribution of the logarithm around a centre, and stalled steps, which
    are x above the centre with density x / t^2 exp(-x / t), t = ``STALL_LOG_RATIO`` (a gamma distribution of shape 2). Shares,
    centre and spread are found by expectation and maximisation. Steps faster than the centre are regular.

    Args:
        errors: logarithms of measured over predicted seconds of the steps of one source.
    """
    if len(errors) < MIN_ROWS:
        return np.ones(len(errors))
    centre, spread, share = float(np.quantile(errors, 0.25)), MAX_SPREAD, 0.5
    for _ in range(MAX_ITERATIONS):
        distance = (errors - centre) / spread
        regular = share / (spread * np.sqrt(2 * np.pi)) * np.exp(-(distance**2) / 2)
        excess = np.maximum(errors - centre, 0.0) / STALL_LOG_RATIO
        stalled = (1 - share) * excess * np.exp(-excess) / STALL_LOG_RATIO
        probability = np.where(excess > 0, regular / (regular + stalled), 1.0)
        share = float(np.mean(probability))
        centre = float(np.sum(probability * errors) / np.sum(probability))
        spread = float(np.clip(np.sqrt(np.sum(probability * (errors - centre) ** 2) / np.sum(probability)), MIN_SPREAD, MAX_SPREAD))
    return probability


def without_stalled(priced_cases: Sequence[PricedCase]) -> list[PricedCase]:
    """Rows that probably did not stall, and rows without a step time; each source and stack has its own mixture."""
    groups = grouped(priced_cases, lambda item: (item.case.row.file, item.case.stack.name))
    return [item for group in groups.values() for item in _without_stalled(group)]


def _without_stalled(group: Sequence[PricedCase]) -> list[PricedCase]:
    timed = [(item, log(item.case.step_seconds / item.step_seconds)) for item in group if item.case.step_seconds]
    probabilities = regular_step_probability(np.array([error for _, error in timed]))
    regular = [item for (item, _), probability in zip(timed, probabilities, strict=True) if probability > 0.5]
    return regular + [item for item in group if not item.case.step_seconds]
