"""Downsampling: an overview shows a ranking in few candidates."""

import pytest

from search.test_rank import WORKLOAD, ranking
from strategist.cards.deck import load_deck
from strategist.paths import data_dir
from strategist.search.downsampling import best_distinct, overview
from strategist.search.rank import Ranking
from strategist.search.similar_candidates import GROUP_COLUMNS


@pytest.fixture(scope="module")
def found() -> Ranking:
    return ranking(load_deck(data_dir("cards")))


def test_each_group_shows_its_best_candidate_and_counts_sum_to_all(found: Ranking) -> None:
    space = overview(found, WORKLOAD.tokens_per_step)
    kinds = {}
    for item in space.seen:
        layout, knobs = item.candidate.layout, item.candidate.knobs
        kinds.setdefault((layout, knobs.recompute, knobs.offload, knobs.activation_offload), item)
    assert sum(item.similar_candidates for item in kinds.values()) == found.columns.rows
    assert space.seen[0].place == 1
    fitting = [item.place for item in space.seen if item.place is not None]
    assert fitting == sorted(set(fitting))
    assert (space.candidates, space.feasible, space.unseen) == (found.candidates, len(found.order), 0)


def test_no_fitting_candidate_dominates_the_front(found: Ranking) -> None:
    space = overview(found, WORKLOAD.tokens_per_step)
    front = [item for item in space.seen if item.front]
    assert front
    seconds, peaks = found.priced.step_seconds[found.order], found.priced.peak_memory_bytes[found.order]
    for item in front:
        faster = WORKLOAD.tokens_per_step / seconds > item.tokens_per_second * (1 + 1e-9)
        smaller = peaks < item.peak_memory_bytes
        assert not (faster & smaller).any()


def test_limiting_the_overview_counts_the_rest_and_keeps_the_front(found: Ranking) -> None:
    whole, few = overview(found, WORKLOAD.tokens_per_step), overview(found, WORKLOAD.tokens_per_step, max_candidates=5)
    assert few.unseen > 0
    assert sum(item.front for item in few.seen) == sum(item.front for item in whole.seen)
    assert len(few.seen) <= 5 + sum(item.front for item in whole.seen)


def test_best_distinct_shows_the_best_candidate_of_each_group(found: Ranking) -> None:
    """Candidates that differ from it in axis order, micro-batch or a minor knob are left out."""
    shown = best_distinct(found, 5).tolist()
    kinds = [tuple(found.columns.values[name][row] for name in GROUP_COLUMNS) for row in shown]
    places = [found.order.tolist().index(row) for row in shown]
    assert places == sorted(places)
    assert places[0] == 0
    assert len(set(kinds)) == 5
    for row in found.order[: places[-1]].tolist():
        assert tuple(found.columns.values[name][row] for name in GROUP_COLUMNS) in kinds
