"""Pareto fronts, and searches for them."""

import random
import statistics
from itertools import product

import numpy as np
import pytest

from search.plans import measured, plan
from strategist.contract.goals import Goals
from strategist.contract.plan import Plan
from strategist.search.pareto_front import expected_hypervolume_gain, spread_over_front, undominated
from strategist.search.study import Tried, propose

BOTH = Goals(objectives=("throughput", "memory"))


def test_undominated_returns_the_pareto_front() -> None:
    assert undominated([(1, 5), (2, 3), (3, 4), (4, 1), (4, 2)]) == [0, 1, 3]
    assert undominated([(2, 2), (1, 1), (1, 1)]) == [1, 2]
    assert undominated([(1, 2, 3), (3, 2, 1), (2, 2, 2), (3, 3, 3)]) == [0, 1, 2]
    assert undominated([]) == []


def test_undominated_equals_a_pairwise_comparison() -> None:
    chance = np.random.default_rng(1)
    values = chance.integers(0, 6, (200, 3)).tolist()

    def dominated(own: list[int]) -> bool:
        return any(other != own and all(left <= right for left, right in zip(other, own, strict=True)) for other in values)

    assert undominated(values) == [place for place, own in enumerate(values) if not dominated(own)]


def test_hypervolume_gain_is_the_newly_dominated_volume() -> None:
    measured = np.log([[1.0, 4.0], [4.0, 1.0]])
    mean = np.log([[2.0, 2.0], [1.0, 4.0], [4.5, 4.5], [1.5, 3.5]])
    found = expected_hypervolume_gain(mean, np.full((4, 2), 1e-3), np.ones(4), measured)
    assert found.argmax() == 0
    assert found[3] > 0
    assert found[1:3] == pytest.approx(0.0, abs=1e-3)
    high = np.log(4.0 * 1.1)
    added = np.log(2.0) ** 2 / (
        high**2 - np.log(4.0) ** 2
    )  # from 2 to 4 in both objectives, relative to the volume that the two measured points dominate
    assert found[0] == pytest.approx(added, rel=0.1)


def test_hypervolume_gain_scales_with_feasibility_and_uncertainty() -> None:
    measured = np.log([[1.0, 1.0]])
    mean, runs = np.log([[1.2, 1.2], [1.2, 1.2], [1.2, 1.2]]), np.array([1.0, 0.5, 1.0])
    found = expected_hypervolume_gain(mean, np.array([[0.3, 0.3], [0.3, 0.3], [0.01, 0.01]]), runs, measured)
    assert found[0] == pytest.approx(2 * found[1])
    assert found[2] < 1e-6 < found[1]


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_without_measurements_the_best_predicted_candidate_has_the_largest_gain(objectives: int) -> None:
    mean = np.log(np.array([[2.0] * objectives, [1.0] * objectives, [3.0] * objectives]))
    found = expected_hypervolume_gain(mean, np.full(mean.shape, 0.2), np.ones(3), np.zeros((0, objectives)))
    assert found.argmax() == 1
    assert found.max() == 1.0


def test_spread_over_front_covers_the_whole_front() -> None:
    fast = np.arange(1.0, 1001.0)
    values = np.stack([fast, 1001.0 - fast], axis=1)  # all rows are on the front
    rows = spread_over_front(values, 40)
    assert len(set(rows.tolist())) == 40
    assert rows.min() < 100
    assert rows.max() > 900
    assert len(set((rows // 100).tolist())) >= 5


def space() -> tuple[list[Plan], dict[str, tuple[float, float]]]:
    """Plans that are faster with more memory, best predicted first, and their true step time and memory by id: recomputation takes
    longer than predicted, and keeping parameters unsharded needs less memory.
    """
    plans, truth = [], {}
    for batch, tp, recompute, kept in product(range(6), (1, 2, 4), ("none", "full"), (True, False)):
        full = recompute == "full"
        seconds = (1.0 + 2.0 / 2**batch) * (1.0 + 0.1 * tp) * (1.3 if full else 1.0) * (0.9 if not kept else 1.0)
        peak = (50.0 + 20.0 * 2**batch * (0.4 if full else 1.0)) / tp + (0.0 if kept else 120.0)
        settings = {"micro_batch": 2**batch, "recompute": recompute, "reshard_after_forward": kept}
        own = plan(seconds, peak=min(peak, 890.0), dp_shard=4 // tp, tp=tp, **settings)
        plans.append(own)
        truth[own.id] = seconds * (1.25 if full else 1.0), min(peak, 890.0) * (1.0 if kept else 0.8)
    return sorted(plans, key=lambda own: own.estimate.step_seconds), truth


def trials_until(share: float, sampler: str, seed: int) -> int:
    """Number of trials that find this share of the true front."""
    plans, truth = space()
    front = {plans[place].id for place in undominated([truth[own.id] for own in plans])}
    tried: list[Tried] = []
    while len(front & {item.plan.id for item in tried}) < share * len(front):
        found = propose(plans, tried, BOTH, sampler, seed)
        assert found is not None
        seconds, peak = truth[found.plan.id]
        tried.append(Tried(plan=found.plan, measurement=measured(found.plan, step_seconds=seconds, peak=round(peak))))
    return len(tried)


def test_the_surrogate_finds_the_front_in_fewer_trials_than_random_search() -> None:
    by_surrogate = statistics.fmean(trials_until(0.8, "surrogate", seed) for seed in range(3))
    by_chance = statistics.fmean(trials_until(0.8, "random", seed) for seed in range(3))
    assert by_surrogate < 0.6 * by_chance


@pytest.mark.parametrize("sampler", ["order", "grid", "tpe", "nsga2"])
def test_every_sampler_supports_several_objectives(sampler: str) -> None:
    plans, truth = space()
    tried = [Tried(plan=own, measurement=measured(own, step_seconds=truth[own.id][0])) for own in random.Random(0).sample(plans, 3)]
    found = propose(plans, tried, BOTH, sampler)
    assert found is not None
    assert found.plan not in [item.plan for item in tried]
