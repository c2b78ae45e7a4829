"""Simulated reranking: the best pipelines of a ranking are simulated and sorted again."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.simulated_steps import simulated, with_simulated
from strategist.search.rank import NEAR_TIE, Ranking, in_order, objective_cost

FINALISTS, SEEDS = 512, 1024
"""How many pipelines are simulated at most, and how far down the order they are looked for."""


def reranked(
    ranking: Ranking,
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    *,
    calibration: Calibration,
    objective: str,
    places: int,
    weighted: Callable[[int], bool],
    stack: Stack = NATIVE,
) -> Ranking:
    """The ranking with the step of its best pipelines simulated, and so many first ``places`` decided by it. ``weighted`` says of a
    row whether its stages are cut by weight.

    Pipelines are simulated in order, until even at their price none of the others could come near those places.
    """
    seeds = ranking.order[:SEEDS]
    pipes = np.flatnonzero(ranking.columns.values["layout.pp"][seeds] > 1)
    head = seeds[: pipes[FINALISTS]] if len(pipes) > FINALISTS else seeds
    waiting, priced, settled = seeds[pipes[:FINALISTS]], ranking.priced, np.ones(len(head), dtype=np.bool_)
    settled[pipes[:FINALISTS]] = False
    uneven: set[int] = set()
    pipelines = len(waiting)
    while len(waiting):
        value = objective_cost(priced, objective)
        best = np.sort(value[head[settled]])[:places]
        limit = best[-1] * (1 + NEAR_TIE) if len(best) == places else np.inf
        batch = waiting[value[waiting] <= limit][: max(2 * places, pipelines - len(waiting))]  # twice as many each time
        if not len(batch):
            break
        cut = np.array([weighted(int(row)) for row in batch])
        for kind, rows in ((False, batch[~cut]), (True, batch[cut])):
            found = (
                simulated(model, cluster, workload, ranking.columns.take(rows), calibration, stack, weighted=kind)
                if len(rows)
                else ()
            )
            priced = with_simulated(priced, found, rows.tolist())
        uneven |= set(batch[cut].tolist())
        settled |= np.isin(head, batch)
        waiting = waiting[~np.isin(waiting, batch)]
    order = np.concatenate([head[in_order(priced, ranking.prefer, objective, head)], ranking.order[len(head) :]])
    return replace(ranking, priced=priced, order=order, weighted=frozenset(uneven))
