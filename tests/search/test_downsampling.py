"""An overview shows the whole of a ranking in few candidates."""

import pytest

from search.test_rank import WORKLOAD, ranking
from strategist.cards.deck import load_deck
from strategist.paths import data_dir
from strategist.search.downsampling import GROUP_COLUMNS, best_distinct, overview
from strategist.search.rank import Ranking


@pytest.fixture(scope="module")
def found() -> Ranking:
    return ranking(load_deck(data_dir("cards")))


def test_each_group_has_its_best_and_all_candidates_are_counted(found: Ranking) -> None:
    space = overview(found, WORKLOAD.tokens_per_step)
    kinds = {}
    for item in space.seen:
        layout, knobs = item.candidate.layout, item.candidate.knobs
        kinds.setdefault((layout, knobs.recompute, knobs.offload, knobs.activation_offload), item)
    assert sum(item.alike for item in kinds.values()) == found.columns.rows
    assert space.seen[0].place == 1
    fitting = [item.place for item in space.seen if item.place is not None]
    assert fitting == sorted(set(fitting))
    assert (space.candidates, space.feasible, space.unseen) == (found.candidates, len(found.order), 0)


def test_none_that_fits_is_faster_and_smaller_than_one_of_the_front(found: Ranking) -> None:
    space = overview(found, WORKLOAD.tokens_per_step)
    front = [item for item in space.seen if item.front]
    assert front
    seconds, peaks = found.priced.step_seconds[found.order], found.priced.peak_memory_bytes[found.order]
    for item in front:
        faster = WORKLOAD.tokens_per_step / seconds > item.tokens_per_second * (1 + 1e-9)
        smaller = peaks < item.peak_memory_bytes
        assert not (faster & smaller).any()


def test_what_is_left_out_is_counted_and_the_front_stays(found: Ranking) -> None:
    whole, few = overview(found, WORKLOAD.tokens_per_step), overview(found, WORKLOAD.tokens_per_step, most=5)
    assert few.unseen > 0
    assert sum(item.front for item in few.seen) == sum(item.front for item in whole.seen)
    assert len(few.seen) <= 5 + sum(item.front for item in whole.seen)


def test_of_candidates_that_are_alike_the_best_is_shown(found: Ranking) -> None:
    """Others that differ in the order of axes, the micro-batch or a knob of small effect stay away."""
    shown = best_distinct(found, 5).tolist()
    kinds = [tuple(found.columns.values[name][row] for name in GROUP_COLUMNS) for row in shown]
    places = [found.order.tolist().index(row) for row in shown]
    assert places == sorted(places)
    assert places[0] == 0
    assert len(set(kinds)) == 5
    for row in found.order[: places[-1]].tolist():
        assert tuple(found.columns.values[name][row] for name in GROUP_COLUMNS) in kinds
