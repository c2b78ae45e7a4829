"""Simulated reranking: the pipelines at the top of a ranking are simulated action by action and sorted again."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from strategist.cost.simulated_steps import with_simulated
from strategist.search.needed_candidates import NEAR_TIE, objective_cost
from strategist.search.pricing import Pricing
from strategist.search.rank import Ranking, in_order

MAX_SIMULATED, SEARCHED_PLACES = 512, 1024
"""Maximum number of simulated pipelines, and how many first places of the ranking they are taken from."""


def reranked(ranking: Ranking, pricing: Pricing, *, objective: str, count: int, weighted: Callable[[int], bool]) -> Ranking:
    """The ranking, its best pipelines re-priced by simulation so that the first ``count`` are decided by simulated steps.

    Pipelines are simulated in order until none of the remaining ones, even at their price, could come near those places.
    ``weighted`` returns whether the stages of a row are split by weight.
    """
    seeds = ranking.order[:SEARCHED_PLACES]
    pipelined = np.flatnonzero(ranking.columns.values["layout.pp"][seeds] > 1)
    head = seeds[: pipelined[MAX_SIMULATED]] if len(pipelined) > MAX_SIMULATED else seeds
    waiting, priced, settled = seeds[pipelined[:MAX_SIMULATED]], ranking.priced, np.ones(len(head), dtype=np.bool_)
    settled[pipelined[:MAX_SIMULATED]] = False
    weighted_rows: set[int] = set()
    pipelines = len(waiting)
    while len(waiting):
        value = objective_cost(priced, objective)
        best = np.sort(value[head[settled]])[:count]
        limit = best[-1] * (1 + NEAR_TIE) if len(best) == count else np.inf
        batch = waiting[value[waiting] <= limit][: max(2 * count, pipelines - len(waiting))]  # doubles with each round
        if not len(batch):
            break
        is_weighted = np.array([weighted(int(row)) for row in batch])
        for is_weighted_kind, rows in ((False, batch[~is_weighted]), (True, batch[is_weighted])):
            found = pricing.simulated(ranking.columns.take(rows), weighted=is_weighted_kind) if len(rows) else ()
            priced = with_simulated(priced, found, rows.tolist())
        weighted_rows |= set(batch[is_weighted].tolist())
        settled |= np.isin(head, batch)
        waiting = waiting[~np.isin(waiting, batch)]
    order = np.concatenate([head[in_order(priced, ranking.prefer, objective, head)], ranking.order[len(head) :]])
    return replace(ranking, priced=priced, order=order, weighted=frozenset(weighted_rows))
