"""Downsampling: a small sample of a ranking whose plot represents all candidates."""

from typing import TYPE_CHECKING

import numpy as np

from strategist.contract.answer import Dropped
from strategist.expr.columns import Array
from strategist.search.rank import Ranking, candidate
from strategist.search.similar_candidates import first_of_groups, groups_of

if TYPE_CHECKING:
    from strategist.contract.report import Space

MAX_CANDIDATES = 1500
"""Maximum number of candidates in an overview, without those on the Pareto front."""


def best_distinct(ranking: Ranking, limit: int | None) -> Array:
    """At most ``limit`` rows that fit, best first; one per group of similar candidates."""
    groups, _ = groups_of(ranking.columns)
    return first_of_groups(groups, ranking.order)[:limit]


def overview(ranking: Ranking, tokens_per_step: int, max_candidates: int = MAX_CANDIDATES) -> "Space":
    """The Pareto front of speed and memory, and the representative of each group of similar candidates."""
    from strategist.contract.report import Seen, Space

    groups, sizes = groups_of(ranking.columns)
    best = _representatives(ranking, groups)
    front_rows = set(_front(ranking).tolist())
    rows = list(dict.fromkeys([*best[:max_candidates].tolist(), *sorted(front_rows)]))
    positions = {int(row): position for position, row in enumerate(ranking.order.tolist(), start=1)}
    priced = ranking.priced
    shown = [
        Seen(
            candidate=candidate(ranking.columns, row), tokens_per_second=tokens_per_step / float(priced.step_seconds[row]),
            peak_memory_bytes=float(priced.peak_memory_bytes[row]), similar_candidates=int(sizes[groups[row]]),
            place=positions.get(row),
            front=row in front_rows,
        )
        for row in rows
    ]  # fmt: skip
    shown.sort(key=lambda item: (item.place is None, item.place or item.peak_memory_bytes))
    dropped = (Dropped(card=drop.card, policy=drop.policy, because=drop.because, candidates=drop.rows) for drop in ranking.dropped)
    return Space(
        candidates=ranking.candidates, dropped=tuple(dropped), too_large=ranking.too_large, host_too_small=ranking.host_too_small,
        feasible=ranking.feasible, seen=tuple(shown), unseen=max(0, len(best) - max_candidates),
    )  # fmt: skip


def _representatives(ranking: Ranking, groups: Array) -> Array:
    """The representative row of each group: those that fit in their order, then the others by size."""
    fitting = first_of_groups(groups, ranking.order)
    others = np.flatnonzero(~np.isin(groups, groups[fitting]))
    others = others[np.argsort(ranking.priced.peak_memory_bytes[others], kind="stable")]
    return np.concatenate([fitting, first_of_groups(groups, others)])


def _front(ranking: Ranking) -> Array:
    """Rows that fit and for which no row is both faster and smaller."""
    rows, priced = ranking.order, ranking.priced
    rows = rows[np.lexsort((priced.peak_memory_bytes[rows], priced.step_seconds[rows]))]
    peaks = priced.peak_memory_bytes[rows]
    smallest = np.minimum.accumulate(np.append(np.inf, peaks[:-1])) if len(rows) else peaks
    return np.asarray(rows[peaks < smallest])
