"""Pruning: a ranking of promising candidates begins like the ranking of all, and pruned candidates are counted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import strategist.rules.policy_evaluation
import strategist.search.pruning
import strategist.search.rank
from strategist.api.cards import load_cards
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.expr.evaluate import mask
from strategist.planning.ranking import constraints_of, pricing_of
from strategist.profiles.situation import situation
from strategist.search.downsampling import best_distinct
from strategist.search.needed_candidates import NEAR_TIE
from strategist.search.rank import ALL_TIMED, Places, Ranking, rank
from strategist.search.space import space
from strategist.units import GIB

DRAWN: dict[str, tuple[Any, ...]] = {
    "model": ("8b", "14b", "32b", "70b", "gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b"),
    "gpus": ("8x24GB", "4x80GB", "8xH100", "2x8xA100-40GB", "4x8xH100", "2x8xMI300X", "8xV100-32GB"),
    "objective": ("throughput", "throughput", "memory", "energy"),
    "confidence": (0.5, 0.9, 0.975),
    "allow": ((), (), ("float8",), ("optimizer_in_backward", "reduce_dtype"), ("async_optimizer_step",)),
    "fix": ({}, {}, {"recompute": "none", "activation_offload": True}, {"tp": 2}, {"offload": "none"}, {"pp": 2}),
    "backend": ("any", "any", "torchtitan", "hf-trainer"),
}
WORKLOADS: dict[str, tuple[Any, ...]] = {
    "seq_len": (1024, 4096, 32768),
    "global_batch": (8, 24, 64, 256),
    "train": ("full", "full", "lora", "qlora"),
    "optimizer": ("adamw", "adamw8bit"),
}


def random_request(generator: np.random.Generator) -> Request:
    def choice(choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
        return {name: values[generator.integers(len(values))] for name, values in choices.items()}

    return Request(workload=Workload(**choice(WORKLOADS)), **choice(DRAWN))


def ranking(request: Request, places: Places = ALL_TIMED) -> Ranking:
    problem, constraints = situation(request), constraints_of(request)
    return rank(
        pricing_of(problem, None), space(problem.model, problem.cluster, request.workload, constraints), constraints=constraints,
        deck=load_cards(),
        objective=request.objective, confidence=request.confidence, places=places,
    )  # fmt: skip


def shown(found: Ranking, rows: Any) -> list[dict[str, Any]]:
    return [found.columns.row(int(row)) for row in rows]


def counted(found: Ranking) -> tuple[Any, ...]:
    numbers = (found.candidates, found.dropped, found.too_large, found.host_too_small, found.feasible)
    return (*numbers, found.fits_without_hosts)


def differing_requests(requests: int, seed: int) -> list[Request]:
    """Random requests whose pruned ranking differs from the full one."""
    generator = np.random.default_rng(seed)
    return [request for request in (random_request(generator) for _ in range(requests)) if not same_ranking(request)]


def same_ranking(request: Request) -> bool:
    try:
        whole = ranking(request)
    except InputError:
        return True
    fits = ranking(request, Places())
    every = counted(whole) == counted(fits) and shown(whole, whole.order) == shown(fits, fits.order)
    first = ranking(request, Places(first=20))
    few = ranking(request, Places(first=5, kinds=50))
    same_kinds = (
        counted(few) == counted(whole)
        and shown(few, best_distinct(few, 50)) == shown(whole, best_distinct(whole, 50))
        and shown(few, few.order[:5]) == shown(whole, whole.order[:5])
    )
    seconds = whole.priced.step_seconds[whole.order]
    some = len(first.order) > 0 or len(whole.order) == 0
    same_start = shown(whole, whole.order[:20]) == shown(first, first.order[:20]) and whole.dropped == first.dropped
    if request.objective != "throughput" or not len(seconds):
        return every and some and same_start and same_kinds
    limit = float(np.quantile(seconds, 0.1))
    within = ranking(request, Places(first=20, within_seconds=(1 + NEAR_TIE) * limit))
    near = np.flatnonzero(seconds <= (1 + NEAR_TIE) * seconds.min())[:20]
    return (
        every and some and same_start and same_kinds and shown(whole, whole.order[near]) == shown(within, within.order[: len(near)])
    )


def in_small_parts(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Candidates are priced in tables of so many rows, and judged in larger ones, as those of a large space are."""
    monkeypatch.setattr(strategist.search.rank, "PART_ROWS", rows)
    for module in (strategist.rules.policy_evaluation, strategist.search.pruning):
        monkeypatch.setattr(module, "PART_ROWS", 16 * rows)


def test_a_pruned_ranking_begins_like_the_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_parts(monkeypatch, 1024)
    assert not differing_requests(3, seed=5)


def test_a_pruned_ranking_on_two_stacks_begins_like_the_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer runs some candidates by FSDP and some by DeepSpeed, each priced by the runs of its own framework."""
    in_small_parts(monkeypatch, 64)
    workload = Workload(seq_len=2048, global_batch=64)
    request = Request(model="8b", gpus="8xH100", workload=workload, backend="hf-trainer", allow=("reduce_dtype",))
    found = ranking(request)
    spreads = {float(spread) for spread in found.priced.memory_spread[found.order]}
    assert len(spreads) == 2
    assert same_ranking(request)


def test_each_candidate_is_priced_as_if_its_stack_were_the_only_one() -> None:
    request = Request(model="qwen3-30b-a3b", gpus="2x8xH100", workload=Workload(global_batch=64), backend="hf-trainer")
    problem = situation(replace(request, allow=("reduce_dtype",)))
    columns = ranking(problem.request).columns
    pricing = pricing_of(problem, None)
    [other] = pricing.others
    found = pricing.priced(columns)
    alone = (
        replace(pricing, others=()).priced(columns),
        replace(pricing, stack=other.stack, calibration=other.calibration, others=()).priced(columns),
    )
    by_other = mask(other.when, pricing.facts, columns)
    assert 0 < by_other.sum() < columns.rows
    for name in ("step_seconds", "peak_memory_bytes", "memory_spread", "communication_seconds", "host_memory_bytes_per_node"):
        expected = np.where(by_other, getattr(alone[1], name), getattr(alone[0], name))
        assert np.array_equal(getattr(found, name), expected, equal_nan=True), name
    for name, part in found.first_stage.items():
        assert np.array_equal(part, np.where(by_other, alone[1].first_stage[name], alone[0].first_stage[name])), name
    row = int(np.flatnonzero(by_other)[-1])
    assert found.estimate(row) == alone[1].estimate(row)


@pytest.mark.full
@pytest.mark.parametrize(("requests", "seed"), [(60, 6), pytest.param(300, 8, marks=pytest.mark.weekly)])
def test_pruned_rankings_of_many_requests_begin_like_the_full_ones(
    requests: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch, 1024)
    assert not differing_requests(requests, seed=seed)


def test_a_default_that_no_layout_keeps_does_not_end_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one sequence on 2,048 devices no layout leaves the context whole, as CP-001 wants by default."""
    in_small_parts(monkeypatch, 1024)
    request = Request(model="mixtral-8x7b", gpus="256x8xH100", workload=Workload(seq_len=4096, global_batch=1))
    assert same_ranking(request)
    assert "CP-001" not in {drop.card for drop in ranking(request).dropped}


def test_if_no_candidate_fits_the_pruned_ranking_keeps_the_smallest_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_parts(monkeypatch, 64)
    host = 256 * GIB
    workload = Workload(global_batch=64)
    request = Request(model="mixtral-8x7b", gpus="2x8xA100-40GB", workload=workload, host_memory_bytes=host, fix={"pp": 1, "cp": 1})
    whole, found = ranking(request), ranking(request, Places())
    assert len(whole.order) == len(found.order) == 0
    assert found.too_large == whole.too_large > found.columns.rows > 0
    assert found.host_too_small == whole.host_too_small
    assert found.priced.peak_memory_bytes.min() == whole.priced.peak_memory_bytes.min()
