"""Candidates priced, judged and searched a second on one core: python benchmarks/pricing.py"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable
from time import process_time

import numpy as np

from strategist.cards.deck import load_deck
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.price import price
from strategist.paths import data_dir
from strategist.planning.ranking import PlanningContext, ranking_of
from strategist.profiles.situation import situation
from strategist.rules.policy_evaluation import judge
from strategist.search.candidate_tables import candidate_table
from strategist.search.facts import situation_facts
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

RUNS = 5
ROWS = 300_000
REQUESTS = (
    Request(model="70b", gpus="16x8xH100", workload=Workload(global_batch=256)),
    Request(model="mixtral-8x7b", gpus="16x8xH100", workload=Workload(global_batch=256)),
)


def seconds(work: Callable[[], object]) -> float:
    """Least processor time of ``RUNS`` runs, which a busy machine disturbs least."""
    times = []
    for _ in range(RUNS):
        begin = process_time()
        work()
        times.append(process_time() - begin)
    return min(times)


def main() -> None:
    """One line a kind of model: ``ROWS`` candidates, spread over the space, priced and judged; then the search of the whole space,
    which prices only what the cards allow.
    """
    deck = load_deck(data_dir("cards"))
    for request in REQUESTS:
        request_situation = situation(request)
        model, on, workload = request_situation.model, request_situation.cluster, request.workload
        blocks = space(model, on, workload, SpaceConstraints())
        made = seconds(lambda: space(model, on, workload, SpaceConstraints()))  # noqa: B023 - called at once
        columns = candidate_table(blocks).take(np.linspace(0, blocks.candidates - 1, ROWS).astype(np.int64))
        facts = situation_facts(model, on, workload)
        priced = seconds(lambda: price(model, on, workload, columns))  # noqa: B023 - called at once
        judged = seconds(lambda: judge(deck, facts, columns))  # noqa: B023 - called at once
        searched = seconds(lambda: ranking_of(request_situation, PlanningContext(deck=deck, calibration=None)))  # noqa: B023 - called at once
        print(
            f"candidates of {model.name} on {on.name} a second, least of {RUNS} runs: priced {columns.rows / priced:,.0f}; "
            f"judged by {len(deck.cards)} cards {columns.rows / judged:,.0f}; searched {blocks.candidates / searched:,.0f} "
            f"(a space of {blocks.candidates:,} made in {made:.2f} s and ranked in {searched:.2f} s)"
        )


if __name__ == "__main__":
    main()
