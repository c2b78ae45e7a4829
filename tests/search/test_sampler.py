"""Samplers: which candidate is tried next."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from search.plans import measured, plan
from strategist.contract.goals import Goals
from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.search.settings import SAMPLERS
from strategist.search.study import Tried, propose

WITHOUT_TORCH = [name for name in SAMPLERS if name != "gp"]


def tried(*plans: Plan) -> list[Tried]:
    return [Tried(plan=item, measurement=measured(item)) for item in plans]


def proposed(ranked: list[Plan], known: list[Tried], **how: Any) -> Plan | None:
    found = propose(ranked, known, **how)
    return found and found.plan


def test_the_first_proposal_is_the_best_predicted_and_near_ties_keep_ranking_order() -> None:
    ranked = [plan(1.01, micro_batch=2, preferences=3), plan(1.0, micro_batch=1), plan(2.0, micro_batch=4)]
    assert proposed(ranked, []) is ranked[0]
    assert proposed(ranked[1:], []) is ranked[1]


@pytest.mark.parametrize("sampler", WITHOUT_TORCH)
def test_each_candidate_is_proposed_exactly_once(sampler: str) -> None:
    ranked = [plan(1.0 + i, micro_batch=2**i, reshard_after_forward=i != 2) for i in range(4)]
    known: list[Tried] = []
    while (found := proposed(ranked, known, sampler=sampler)) is not None:
        assert found not in [item.plan for item in known]
        known += tried(found)
    assert len(known) == len(ranked)


def test_a_running_trial_is_not_proposed_again() -> None:
    ranked = [plan(1.0), plan(2.0, micro_batch=2)]
    assert proposed(ranked, [Tried(plan=ranked[0])]) is ranked[1]


def test_candidates_similar_to_a_slower_than_predicted_trial_are_postponed() -> None:
    first, alike, unlike = plan(1.0), plan(1.05, micro_batch=2), plan(1.5, dp_shard=1, tp=4, micro_batch=16, recompute="full")
    assert proposed([first, alike, unlike], tried(first)) is alike
    slow = Tried(plan=first, measurement=measured(first, step_seconds=2.0))
    assert proposed([first, alike, unlike], [slow]) is unlike


def test_candidates_similar_to_a_running_trial_are_postponed() -> None:
    running, alike, unlike = plan(1.0, dp_shard=1, tp=4), plan(1.0, dp_shard=1, tp=4, micro_batch=2), plan(1.02, recompute="full")
    far = tried(plan(1.0, dp_shard=2, tp=2, micro_batch=64, optimizer_in_backward=True))
    assert proposed([alike, unlike], far) is alike
    assert proposed([alike, unlike], [*far, Tried(plan=running)]) is unlike


def test_after_an_oom_candidates_with_as_much_memory_come_last() -> None:
    large, larger, small = plan(1.0, peak=600), plan(2.0, peak=700, micro_batch=2), plan(3.0, peak=400, micro_batch=4)
    failed = Tried(plan=large, measurement=measured(large, Outcome.OOM))
    assert proposed([large, larger, small], [failed]) is small
    assert proposed([large, larger, small], [failed, *tried(small)]) is larger


def test_candidates_predicted_not_to_fit_come_last() -> None:
    over, slow = plan(1.0, peak=901), plan(9.0, micro_batch=2)
    assert proposed([over, slow], []) is slow
    assert proposed([over, slow], tried(slow)) is over


def test_the_memory_objective_proposes_the_smallest_peak() -> None:
    ranked = [plan(3.0, peak=100), plan(1.0, peak=200, micro_batch=2)]
    assert proposed(ranked, [], goals=Goals(objectives=("memory",))) is ranked[0]


@pytest.mark.parametrize("sampler", ["surrogate", "order"])
def test_candidates_expected_to_miss_the_headroom_come_last(sampler: str) -> None:
    full, slow = plan(1.0, peak=800), plan(2.0, peak=600, micro_batch=2)
    assert proposed([full, slow], [], sampler=sampler) is full
    assert proposed([full, slow], [], sampler=sampler, goals=Goals(headroom=0.2)) is slow


def test_candidates_expected_to_miss_the_throughput_constraint_are_postponed() -> None:
    small, fast = plan(3.0, peak=100), plan(1.0, peak=200, micro_batch=2)
    memory = Goals(objectives=("memory",))
    in_time = replace(memory, least_tokens_per_second=small.workload.tokens_per_step / 2.0)
    assert proposed([small, fast], [], goals=memory) is small
    assert proposed([small, fast], [], goals=in_time) is fast
    quick = Tried(plan=plan(3.1, peak=110, micro_batch=64), measurement=measured(small, step_seconds=0.3, peak=110))
    assert proposed([small, fast], [quick], goals=in_time) is small  # a trial showed that predictions are pessimistic


def test_trials_that_miss_a_constraint_do_not_lower_the_expected_gain() -> None:
    first, second = plan(1.0, peak=500), plan(1.5, peak=400, micro_batch=2)
    misses, keeps = (Tried(plan=first, measurement=measured(first, peak=peak)) for peak in (700, 500))
    gain = {
        peak: found.expected_gain
        for peak, known in ((700, misses), (500, keeps))
        if (found := propose([first, second], [known], Goals(headroom=0.3))) is not None
    }
    assert gain[700] > 2 * gain[500]


def test_the_expected_gain_falls_after_the_best_was_found() -> None:
    ranked = [plan(1.0), plan(1.1, micro_batch=2), plan(2.0, micro_batch=4)]
    slow, fast = (Tried(plan=ranked[0], measurement=measured(ranked[0], step_seconds=seconds)) for seconds in (1.0, 0.5))
    after_slow, after_fast = propose(ranked, [slow]), propose(ranked, [fast, *tried(ranked[1])])
    assert after_slow is not None
    assert after_fast is not None
    assert after_slow.expected_gain > 10 * after_fast.expected_gain


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2"])
def test_random_samplers_depend_on_the_seed_only(sampler: str) -> None:
    ranked = [plan(1.0 + i, micro_batch=2**i) for i in range(8)]
    orders = [[key_of(ranked, sampler, seed, done) for done in range(4)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def key_of(ranked: list[Plan], sampler: str, seed: int, done: int) -> str:
    found = proposed(ranked, tried(*ranked[:done]), sampler=sampler, seed=seed)
    assert found is not None
    return found.id


def test_optunas_gp_sampler_runs_in_a_separate_process() -> None:
    ranked, before = [plan(1.0 + i, micro_batch=2**i) for i in range(3)], set(sys.modules)
    assert proposed(ranked, tried(ranked[0]), sampler="gp") in ranked[1:]
    assert "torch" not in set(sys.modules) - before
