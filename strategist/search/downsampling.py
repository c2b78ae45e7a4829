"""Downsampling: a small sample of a ranking whose plot shows the whole."""

from typing import TYPE_CHECKING

import numpy as np

from strategist.contract.answer import Dropped
from strategist.contract.layout import DEGREES
from strategist.expr.columns import Array, Columns
from strategist.search.rank import Ranking, candidate

if TYPE_CHECKING:
    from strategist.contract.report import Space

MOST = 1500
"""Candidates in an overview at most, those of the front not counted."""

ALIKE = (*(f"layout.{name}" for name in DEGREES), "knobs.recompute", "knobs.offload", "knobs.activation_offload")
"""What candidates have in common of which one stands for all: the best that fits or, where none does, the smallest."""


def best_distinct(ranking: Ranking, limit: int | None) -> Array:
    """The rows that fit, best first, and of those that are alike the best alone; so many at most."""
    groups, _ = _groups(ranking.columns)
    _, first = np.unique(groups[ranking.order], return_index=True)
    return np.asarray(ranking.order[np.sort(first)[:limit]])


def overview(ranking: Ranking, tokens_per_step: int, most: int = MOST) -> "Space":
    """The front of speed and memory, and the best of each group of candidates that are alike."""
    from strategist.contract.report import Seen, Space

    groups, sizes = _groups(ranking.columns)
    best = _best(ranking, groups)
    ahead = set(_front(ranking).tolist())
    rows = list(dict.fromkeys([*best[:most].tolist(), *sorted(ahead)]))
    places = {int(row): place for place, row in enumerate(ranking.order.tolist(), start=1)}
    priced = ranking.priced
    seen = [
        Seen(
            candidate=candidate(ranking.columns, row), tokens_per_second=tokens_per_step / float(priced.step_seconds[row]),
            peak_memory_bytes=float(priced.peak_memory_bytes[row]), alike=int(sizes[groups[row]]), place=places.get(row),
            front=row in ahead,
        )
        for row in rows
    ]  # fmt: skip
    seen.sort(key=lambda item: (item.place is None, item.place or item.peak_memory_bytes))
    dropped = (Dropped(card=drop.card, policy=drop.policy, because=drop.because, candidates=drop.rows) for drop in ranking.dropped)
    return Space(
        candidates=ranking.candidates, dropped=tuple(dropped), too_large=ranking.too_large, host_too_small=ranking.host_too_small,
        feasible=len(ranking.order), seen=tuple(seen), unseen=max(0, len(best) - most),
    )  # fmt: skip


def _groups(columns: Columns) -> tuple[Array, Array]:
    """The group of each row, and how many rows each group has."""
    group = np.zeros(columns.rows, dtype=np.int64)
    for name in ALIKE:
        values, codes = np.unique(columns.values[name], return_inverse=True)
        group = np.unique(group * len(values) + codes, return_inverse=True)[1]  # compressed, so that it never overflows
    return group, np.bincount(group)


def _best(ranking: Ranking, groups: Array) -> Array:
    """The row of each group: those that fit in their order, then those that do not, the smallest first."""
    found, first = np.unique(groups[ranking.order], return_index=True)
    fitting = ranking.order[np.sort(first)]
    others = np.flatnonzero(~np.isin(groups, found))
    others = others[np.argsort(ranking.priced.peak_memory_bytes[others], kind="stable")]
    _, smallest = np.unique(groups[others], return_index=True)
    return np.concatenate([fitting, others[np.sort(smallest)]])


def _front(ranking: Ranking) -> Array:
    """The rows that fit and that none is both faster and smaller than."""
    rows, priced = ranking.order, ranking.priced
    rows = rows[np.lexsort((priced.peak_memory_bytes[rows], priced.step_seconds[rows]))]
    peaks = priced.peak_memory_bytes[rows]
    smallest = np.minimum.accumulate(np.append(np.inf, peaks[:-1])) if len(rows) else peaks
    return np.asarray(rows[peaks < smallest])
