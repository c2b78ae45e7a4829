"""Simulated reranking: pipelines in the first places are simulated, with the same result as simulating all."""

from dataclasses import replace

import numpy as np
import pytest

from strategist.api import load_cards
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.simulated_steps import simulated, with_simulated
from strategist.profiles.situation import Situation, situation
from strategist.search.pricing import Pricing
from strategist.search.rank import Ranking, in_order, rank
from strategist.search.simulated_reranking import MAX_SIMULATED, reranked
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

NEEDS_PIPELINES = Request(model="32b", gpus="8x24GB", workload=Workload(global_batch=64))
HAS_SOME = Request(model="32b", gpus="2x8xH100", workload=Workload(global_batch=64))


def pricing_of(problem: Situation) -> Pricing:
    return Pricing(model=problem.model, cluster=problem.cluster, workload=problem.request.workload)


def ranking(problem: Situation) -> Ranking:
    request, constraints = problem.request, SpaceConstraints(fix=problem.request.fix)
    found = space(problem.model, problem.cluster, request.workload, constraints)
    return rank(pricing_of(problem), found, constraints=constraints, deck=load_cards(), objective=request.objective)


def reranked_ranking(problem: Situation, before: Ranking, places: int = 5) -> Ranking:
    objective = problem.request.objective
    return reranked(before, pricing_of(problem), objective=objective, count=places, weighted=lambda _: False)


@pytest.mark.parametrize("request_", [NEEDS_PIPELINES, HAS_SOME])
def test_reranking_finds_the_same_best_plan_as_simulating_all(request_: Request) -> None:
    problem = situation(request_)
    before = ranking(problem)
    order, columns = before.order, before.columns
    pipes = order[:1024][columns.values["layout.pp"][order[:1024]] > 1][:MAX_SIMULATED]
    found = simulated(problem.model, problem.cluster, request_.workload, columns.take(pipes))
    priced = with_simulated(before.priced, found, pipes.tolist())
    every = order[in_order(priced, before.prefer, "throughput", order)]
    after = reranked_ranking(problem, before)
    assert sorted(after.order.tolist()) == sorted(order.tolist())
    assert after.order[0] == every[0]
    assert after.priced.step_seconds[after.order[0]] == priced.step_seconds[every[0]]


def test_reranking_changes_only_the_time_of_pipelines() -> None:
    problem = situation(HAS_SOME)
    before = ranking(problem)
    after = reranked_ranking(problem, before)
    changed = np.flatnonzero(after.priced.step_seconds != before.priced.step_seconds)
    assert 0 < len(changed) <= MAX_SIMULATED
    assert (before.columns.values["layout.pp"][changed] > 1).all()
    assert (after.priced.peak_memory_bytes == before.priced.peak_memory_bytes).all()


def test_reranking_without_pipelines_keeps_the_order() -> None:
    problem = situation(replace(NEEDS_PIPELINES, model="8b", fix={"pp": 1}))
    before = ranking(problem)
    assert reranked_ranking(problem, before).order.tolist() == before.order.tolist()


def test_reranking_keeps_the_smallest_peak_first_for_the_memory_objective() -> None:
    problem = situation(replace(NEEDS_PIPELINES, objective="memory"))
    after = reranked_ranking(problem, ranking(problem), places=1)
    memory = after.priced.peak_memory_bytes[after.order]
    assert memory[0] <= memory.min() * 1.04
