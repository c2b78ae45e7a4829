"""Goals of a study: objectives and constraints, evaluated on estimates and on measurements."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from search.plans import measured, plan

from strategist.contract import codec
from strategist.contract.goals import Goals, cost, energy
from strategist.contract.plan import Plan
from strategist.errors import InputError

PLAN = plan(2.0, peak=400.0)


def priced(price_per_step: float = 0.004, energy_joules_per_step: float = 1000.0) -> Plan:
    estimate = replace(PLAN.estimate, price_per_step=price_per_step, energy_joules_per_step=energy_joules_per_step)
    return replace(PLAN, estimate=estimate)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"objectives": ()}, "objectives: are missing"),
        ({"objectives": ("throughput", "speed")}, "--pareto speed: is not known; choose one of throughput, memory, cost, energy"),
        ({"objectives": ("memory", "memory")}, "--pareto memory: is the objective itself"),
        ({"objectives": ("throughput", "memory", "memory")}, "--pareto memory: is named twice"),
        ({"headroom": 1.0}, "--headroom 1: must lie from 0 to below 1"),
        ({"least_tokens_per_second": 0.0}, "--least-tokens-per-second 0: must be above 0"),
        ({"most_cost": inf}, "--most-cost inf: must be above 0"),
    ],
)
def test_invalid_goals_raise_a_one_line_error(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Goals(**given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("goals", "words"),
    [
        (Goals(objectives=("memory",)), "must begin with that of the request, throughput"),
        (Goals(objectives=("throughput", "energy")), "--pareto energy: the power limit of a .* is unknown"),
        (Goals(objectives=("throughput", "cost")), "--pareto cost: the price of a .* is unknown"),
        (Goals(most_cost=1.0), "--most-cost: the price of a .* is unknown"),
    ],
)
def test_goals_that_need_unknown_price_or_power_are_refused(goals: Goals, words: str) -> None:
    device = replace(PLAN.cluster.device, power_watts=None, price_per_hour=None)
    with pytest.raises(InputError, match=words):
        goals.check("throughput", replace(PLAN.cluster, device=device))
    if goals.objective == "throughput":
        device = replace(device, power_watts=300.0, price_per_hour=2.0)
        goals.check("throughput", replace(PLAN.cluster, device=device))


def test_energy_and_cost_follow_from_the_measured_step() -> None:
    found, tokens = priced(), PLAN.workload.tokens_per_step
    assert energy(found, 4.0) == pytest.approx(1e6 * 2000.0 / tokens)
    assert cost(found, 4.0) == pytest.approx(1e6 * 0.008 / tokens)
    goals = Goals(objectives=("memory", "throughput", "cost", "energy"))
    assert goals.measured(found, measured(found, step_seconds=4.0, peak=300)) == (300, 4.0, 4.0, energy(found, 4.0))
    assert goals.predicted(found) == (400.0, 2.0, 2.0, energy(found, 2.0))


def test_an_unmeasured_objective_has_no_value() -> None:
    without = replace(measured(PLAN), peak_memory_bytes=())
    assert Goals(objectives=("throughput", "memory")).measured(PLAN, without) is None
    assert Goals().measured(PLAN, without) == (1.0,)
    assert Goals(headroom=0.1).missed(PLAN, without) == {"headroom": inf}


def test_constraints_are_checked_on_measurements_not_on_estimates() -> None:
    tokens, found = PLAN.workload.tokens_per_step, priced()
    goals = Goals(headroom=0.5, least_tokens_per_second=tokens / 3.0, most_cost=1e6 * 0.002 / tokens)
    missed = goals.missed(found, measured(found, step_seconds=3.0, peak=540))
    assert missed == {"headroom": pytest.approx(0.2), "cost": pytest.approx(2.0)}
    assert goals.missed(found, measured(found, step_seconds=1.0, peak=450)) == {}


def test_goals_survive_a_json_round_trip() -> None:
    goals = Goals(objectives=("throughput", "memory"), headroom=0.1, most_cost=2.5)
    assert codec.loads(Goals, codec.dumps(goals)) == goals
