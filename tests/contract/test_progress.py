"""Progress of long work."""

import pytest

from strategist.contract import progress
from strategist.contract.progress import Stage, counted, share_done, stage, under_way


@pytest.fixture(autouse=True)
def no_active_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes stages that another test of this process left active."""
    monkeypatch.setattr(progress, "_STAGES", [])


def test_counted_work_is_active_during_iteration() -> None:
    seen = [(item, [(each.units, each.done, each.total) for each in under_way()]) for item in counted("ab", "letters")]
    assert seen == [("a", [("letters", 0, 2)]), ("b", [("letters", 1, 2)])]
    assert under_way() == ()


def test_nested_stages_come_after_their_parent() -> None:
    with stage("plans", 3):
        for _ in counted("ab", "ranks"):
            assert [each.units for each in under_way()] == ["plans", "ranks"]
            break
    assert under_way() == ()


def test_an_error_ends_the_stage() -> None:
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
def test_progress_of_nested_stages_counts_towards_their_parent(stages: tuple[tuple[int, int], ...], share: float) -> None:
    assert share_done([Stage(units="parts", total=total, done=done) for done, total in stages]) == share
