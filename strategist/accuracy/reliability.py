"""Reliability of the predicted probability that a candidate fits: share of published runs that ran, by range of the prediction."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from strategist.accuracy.error_metrics import PricedCase
from strategist.accuracy.held_out_errors import by_group, file_of
from strategist.frozen import frozen

PROBABILITY_EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
"""Bounds of the ranges of predicted probability."""


@frozen
class Reliability:
    """Runs whose predicted probability of fitting lies from ``low`` to below ``high`` (the last range includes 1).

    rows: published runs that ran or ran out of memory.
    ran: share of them that ran; by_source: mean over the sources of that share. None without rows.
    """

    low: float
    high: float
    rows: int
    ran: float | None
    by_source: float | None


def reliability(priced_cases: Sequence[PricedCase]) -> tuple[Reliability, ...]:
    """One entry per range, lowest probability first."""
    finished = [item for item in priced_cases if item.case.oom is not None]
    return tuple(
        _range(low, high, [item for item in finished if _within(item, low, high)]) for low, high in pairwise(PROBABILITY_EDGES)
    )


def _within(item: PricedCase, low: float, high: float) -> bool:
    return low <= item.fit_confidence < high or item.fit_confidence == high == PROBABILITY_EDGES[-1]


def _range(low: float, high: float, priced_cases: Sequence[PricedCase]) -> Reliability:
    shares = [_share_that_ran(rows) for rows in by_group(priced_cases, file_of).values()]
    by_source = float(np.mean(shares)) if shares else None
    return Reliability(
        low=low, high=high, rows=len(priced_cases), ran=_share_that_ran(priced_cases) if priced_cases else None, by_source=by_source
    )


def _share_that_ran(priced_cases: Sequence[PricedCase]) -> float:
    return float(np.mean([not item.case.oom for item in priced_cases]))
