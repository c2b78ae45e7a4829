"""How far work is."""

import pytest

from strategist.contract import progress
from strategist.contract.progress import Stage, counted, share_done, stage, under_way


@pytest.fixture(autouse=True)
def nothing_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that another test of this process has left behind is none of these."""
    monkeypatch.setattr(progress, "_STAGES", [])


def test_work_is_under_way_while_its_items_are_asked_for() -> None:
    seen = [(item, [(each.what, each.done, each.total) for each in under_way()]) for item in counted("ab", "letters")]
    assert seen == [("a", [("letters", 0, 2)]), ("b", [("letters", 1, 2)])]
    assert under_way() == ()


def test_parts_stand_behind_the_whole() -> None:
    with stage("plans", 3):
        for _ in counted("ab", "ranks"):
            assert [each.what for each in under_way()] == ["plans", "ranks"]
            break
    assert under_way() == ()


def test_an_error_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), stage("letters", 1):
        _ = 1 / 0
    assert under_way() == ()


@pytest.mark.parametrize(
    ("stages", "share"),
    [
        ((), 0.0),
        (((0, 0),), 0.0),
        (((1, 4),), 0.25),
        (((1, 4), (1, 2)), 0.375),
        (((3, 4), (2, 2)), 1.0),
        (((4, 4), (1, 2)), 1.0),
    ],
)
def test_shares_of_parts_count_in_the_whole(stages: tuple[tuple[int, int], ...], share: float) -> None:
    assert share_done([Stage(what="parts", total=total, done=done) for done, total in stages]) == share
