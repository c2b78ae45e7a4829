"""Importance of settings for measured step times."""

from itertools import product

import pytest

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.search.setting_importance import influences

GRID = [Candidate(layout=Layout(tp=tp), knobs=Knobs(micro_batch=batch)) for tp, batch in product((1, 2, 4), (1, 2))]


def test_a_setting_that_alone_determines_the_step_has_share_one() -> None:
    found = influences([(candidate, float(candidate.layout.tp)) for candidate in GRID])
    assert [item.setting for item in found] == ["tp", "micro_batch"]
    assert found[0].share == pytest.approx(1.0)
    assert found[1].share == 0.0
    assert [(value, trials) for value, _, trials in found[0].means] == [("1", 2), ("2", 2), ("4", 2)]
    assert [seconds for _, seconds, _ in found[0].means] == pytest.approx([1.0, 2.0, 4.0])


def test_settings_without_variation_or_repetition_have_no_importance() -> None:
    alone = [(candidate, 1.0 + number) for number, candidate in enumerate(GRID[::2])]
    assert influences(alone) == ()
    assert influences([]) == ()


def test_equal_step_times_give_zero_shares() -> None:
    assert {item.share for item in influences([(candidate, 2.0) for candidate in GRID])} == {0.0}
