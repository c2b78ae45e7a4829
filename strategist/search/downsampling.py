"""Downsampling: a small sample of a ranking whose plot represents all candidates."""

from typing import TYPE_CHECKING

import numpy as np

from strategist.contract.answer import Dropped
from strategist.contract.layout import DEGREES
from strategist.expr.columns import Array, Columns
from strategist.search.rank import Ranking, candidate

if TYPE_CHECKING:
    from strategist.contract.report import Space

MAX_CANDIDATES = 1500
"""Maximum number of candidates in an overview, without those on the Pareto front."""

GROUP_COLUMNS = (*(f"layout.{name}" for name in DEGREES), "knobs.recompute", "knobs.offload", "knobs.activation_offload")
"""Columns by which candidates are grouped. One candidate represents its group: the best that fits, or the smallest if none does."""


def best_distinct(ranking: Ranking, limit: int | None) -> Array:
    """At most ``limit`` rows that fit, best first; one per group of similar candidates."""
    groups, _ = _groups(ranking.columns)
    _, first = np.unique(groups[ranking.order], return_index=True)
    return np.asarray(ranking.order[np.sort(first)[:limit]])


def overview(ranking: Ranking, tokens_per_step: int, max_candidates: int = MAX_CANDIDATES) -> "Space":
    """The Pareto front of speed and memory, and the representative of each group of similar candidates."""
    from strategist.contract.report import Seen, Space

    groups, sizes = _groups(ranking.columns)
    best = _representatives(ranking, groups)
    front_rows = set(_front(ranking).tolist())
    rows = list(dict.fromkeys([*best[:max_candidates].tolist(), *sorted(front_rows)]))
    positions = {int(row): position for position, row in enumerate(ranking.order.tolist(), start=1)}
    priced = ranking.priced
    shown = [
        Seen(
            candidate=candidate(ranking.columns, row), tokens_per_second=tokens_per_step / float(priced.step_seconds[row]),
            peak_memory_bytes=float(priced.peak_memory_bytes[row]), alike=int(sizes[groups[row]]), place=positions.get(row),
            front=row in front_rows,
        )
        for row in rows
    ]  # fmt: skip
    shown.sort(key=lambda item: (item.place is None, item.place or item.peak_memory_bytes))
    dropped = (Dropped(card=drop.card, policy=drop.policy, because=drop.because, candidates=drop.rows) for drop in ranking.dropped)
    return Space(
        candidates=ranking.candidates, dropped=tuple(dropped), too_large=ranking.too_large, host_too_small=ranking.host_too_small,
        feasible=len(ranking.order), seen=tuple(shown), unseen=max(0, len(best) - max_candidates),
    )  # fmt: skip


def _groups(columns: Columns) -> tuple[Array, Array]:
    """Group number of each row, and the size of each group."""
    group = np.zeros(columns.rows, dtype=np.int64)
    for name in GROUP_COLUMNS:
        values, codes = np.unique(columns.values[name], return_inverse=True)
        group = np.unique(group * len(values) + codes, return_inverse=True)[1]  # compressed, so that it never overflows
    return group, np.bincount(group)


def _representatives(ranking: Ranking, groups: Array) -> Array:
    """The representative row of each group: those that fit in their order, then the others by size."""
    found, first = np.unique(groups[ranking.order], return_index=True)
    fitting = ranking.order[np.sort(first)]
    others = np.flatnonzero(~np.isin(groups, found))
    others = others[np.argsort(ranking.priced.peak_memory_bytes[others], kind="stable")]
    _, smallest = np.unique(groups[others], return_index=True)
    return np.concatenate([fitting, others[np.sort(smallest)]])


def _front(ranking: Ranking) -> Array:
    """Rows that fit and for which no row is both faster and smaller."""
    rows, priced = ranking.order, ranking.priced
    rows = rows[np.lexsort((priced.peak_memory_bytes[rows], priced.step_seconds[rows]))]
    peaks = priced.peak_memory_bytes[rows]
    smallest = np.minimum.accumulate(np.append(np.inf, peaks[:-1])) if len(rows) else peaks
    return np.asarray(rows[peaks < smallest])
