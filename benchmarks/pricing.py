"""Candidates priced and judged a second on one core: python benchmarks/pricing.py"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from strategist.cards.deck import load_deck
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.price import price
from strategist.paths import data_dir
from strategist.profiles.situation import situation
from strategist.rules.policy_evaluation import judge
from strategist.search.candidate_tables import candidate_table
from strategist.search.facts import situation_facts
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

RUNS = 5
LEAST_ROWS = 300_000
REQUESTS = {
    "dense": Request(model="70b", gpus="16x8xH100", workload=Workload(global_batch=256)),
    "experts": Request(model="mixtral-8x7b", gpus="16x8xH100", workload=Workload(global_batch=256)),
}


def seconds(work: Callable[[], object]) -> float:
    """Median of ``RUNS`` runs."""
    times = []
    for _ in range(RUNS):
        begin = perf_counter()
        work()
        times.append(perf_counter() - begin)
    return median(times)


def main() -> None:
    """One line a kind of model; the candidates of its space, repeated where they are fewer than ``LEAST_ROWS``."""
    deck = load_deck(data_dir("cards"))
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, one core, median of {RUNS}")
    for name, request in REQUESTS.items():
        asked = situation(request)
        model, on, workload = asked.model, asked.cluster, request.workload
        begin = perf_counter()
        enumerated = candidate_table(space(model, on, workload, SpaceConstraints()))
        made = perf_counter() - begin
        columns = enumerated.take(np.resize(np.arange(enumerated.rows), max(LEAST_ROWS, enumerated.rows)))
        facts = situation_facts(model, on, workload)
        priced = seconds(lambda: price(model, on, workload, columns))  # noqa: B023 - called at once
        judged = seconds(lambda: judge(deck, facts, columns))  # noqa: B023 - called at once
        print(
            f"{name}: {model.name} on {on.name}: space {enumerated.rows} candidates in {made:.2f} s; "
            f"price {columns.rows / priced:,.0f} candidates/s ({columns.rows} in {priced:.2f} s); "
            f"judge {len(deck.cards)} cards {columns.rows / judged:,.0f} candidates/s ({judged:.2f} s)"
        )


if __name__ == "__main__":
    main()
