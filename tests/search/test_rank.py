"""Ranking: counts of dropped candidates, and tie-breaking among nearly equal ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strategist.cards.deck import Deck, load_deck
from strategist.contract.workload import Workload
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.search.needed_candidates import NEAR_TIE
from strategist.search.pricing import Pricing
from strategist.search.rank import Ranking, candidate, rank
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints
from strategist.units import GIB

MODEL = resolve_model("8b").shape
ON = resolve_cluster("4x80GB")
WORKLOAD = Workload(global_batch=16)


def ranking(
    deck: Deck, objective: str = "throughput", constraints: SpaceConstraints | None = None, host_memory_bytes: int | None = None
) -> Ranking:
    on = replace(ON, host_memory_bytes=host_memory_bytes)
    constraints, pricing = constraints or SpaceConstraints(), Pricing(model=MODEL, cluster=on, workload=WORKLOAD)
    return rank(pricing, space(MODEL, on, WORKLOAD, constraints), constraints=constraints, deck=deck, objective=objective)


def deck(folder: Path, *policies: str) -> Deck:
    text = "StrategyCard:\n  id: MY-001\n  module: tp\n  intent: A test\n"
    if policies:
        text += "  policies:\n" + "".join(f"    - {{id: p{number}, because: So, {each}}}\n" for number, each in enumerate(policies))
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    return load_deck(folder)


def test_without_cards_the_cost_model_alone_orders_candidates(tmp_path: Path) -> None:
    found = ranking(deck(tmp_path))
    assert found.dropped == ()
    assert len(found.order) + found.too_large == found.candidates == found.columns.rows
    seconds = found.priced.step_seconds[found.order]
    assert seconds[0] <= seconds.min() * (1 + NEAR_TIE)
    classes = np.floor(np.log(seconds / seconds.min()) / np.log1p(NEAR_TIE))
    assert (np.diff(classes) >= 0).all()
    assert found.priced.fits_device[found.order].all()


@pytest.mark.parametrize("name", ["layout.tp", "knobs.micro_batch"])
def test_forbidden_candidates_are_dropped_and_counted_by_card(tmp_path: Path, name: str) -> None:
    free = ranking(deck(tmp_path))
    found = ranking(deck(tmp_path, f"forbid: {{{name.partition('.')[2]}: 2}}"))
    lost = int((free.columns.values[name] == 2).sum())
    assert [(drop.card, drop.policy, drop.because, drop.rows) for drop in found.dropped] == [("MY-001", "p0", "So", lost)]
    assert found.candidates == free.candidates
    assert not (found.columns.values[name] == 2).any()


def test_preferences_decide_among_near_ties_only(tmp_path: Path) -> None:
    free = ranking(deck(tmp_path))
    first = candidate(free.columns, int(free.order[0]))
    other = {"none": "selective", "selective": "none", "full": "none"}[first.knobs.recompute]
    found = ranking(deck(tmp_path, f"prefer: {{recompute: {other}}}"))
    best = float(free.priced.step_seconds[free.order].min())
    assert found.priced.step_seconds[found.order[0]] <= best * (1 + NEAR_TIE)
    near = free.order[free.priced.step_seconds[free.order] < best * (1 + NEAR_TIE)]
    possible = other in {candidate(free.columns, int(row)).knobs.recompute for row in near}
    assert (candidate(found.columns, int(found.order[0])).knobs.recompute == other) == possible


def test_the_memory_objective_puts_the_smallest_peak_first(tmp_path: Path) -> None:
    found = ranking(deck(tmp_path), objective="memory")
    peaks = found.priced.peak_memory_bytes[found.order]
    assert peaks[0] <= peaks.min() * (1 + NEAR_TIE)
    assert peaks[0] < peaks[-1]


def test_candidates_beyond_host_memory_are_counted_separately(tmp_path: Path) -> None:
    none = deck(tmp_path)
    free, bound = ranking(none), ranking(none, host_memory_bytes=GIB)
    assert free.host_too_small == 0 < bound.host_too_small
    assert len(bound.order) + bound.host_too_small == len(free.order)
    assert (bound.priced.host_memory_bytes_per_node[bound.order] <= GIB).all()


def test_fixed_settings_override_a_cards_default_but_not_its_forbid(tmp_path: Path) -> None:
    full = SpaceConstraints(fix={"recompute": "full"})
    assert len(ranking(deck(tmp_path, "set: {recompute: none}"), constraints=full).order)
    forbidden = ranking(deck(tmp_path, "forbid: {recompute: full}"), constraints=full)
    assert len(forbidden.order) == 0
    assert [drop.rows for drop in forbidden.dropped] == [forbidden.candidates]


@pytest.mark.parametrize(
    ("default", "law"),
    [
        ("set: {tp: 2}", "forbid: {tp: 2}, when: knobs.sequence_parallel or not knobs.sequence_parallel"),
        ("set: {micro_batch: 2}", "forbid: {micro_batch: 2}, when: knobs.compile or not knobs.compile"),
        ("set: {recompute: full}", "forbid: {recompute: full}, when: layout.world_size > 1"),
    ],
    ids=["layout", "micro-batch", "knobs"],
)
def test_a_default_yields_to_a_forbid_that_would_leave_no_candidate(tmp_path: Path, default: str, law: str) -> None:
    found, without = ranking(deck(tmp_path, default, law)), ranking(deck(tmp_path, law))
    assert found.columns.rows == without.columns.rows > 0
    assert found.dropped == tuple(replace(drop, policy="p1") for drop in without.dropped)


def test_ranking_is_deterministic(tmp_path: Path) -> None:
    first, second = ranking(deck(tmp_path)), ranking(deck(tmp_path))
    np.testing.assert_array_equal(first.order, second.order)
