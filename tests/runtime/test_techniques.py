"""The page of techniques is complete, and each technique is tested."""

import pytest

from .cases import cases
from .techniques import TECHNIQUES, TESTED_ELSEWHERE, in_every_run, pages


def test_the_page_has_a_row_for_each_technique():
    [text] = pages().values()
    names = [name for group in TECHNIQUES.values() for name in group]
    assert [name for name in names if text.count(f"\n| {name} | ") != 1] == []


@pytest.mark.parametrize("names", [None, in_every_run()], ids=["some case", "a case of every run"])
def test_every_technique_has_a_parity_case(names: list[str] | None):
    plans = [plan for name, plan in cases() if (name in names if names else not name.startswith("reference"))]
    techniques = {name: used for group in TECHNIQUES.values() for name, used in group.items() if name not in TESTED_ELSEWHERE}
    assert [name for name, used in techniques.items() if not any(used(plan) for plan in plans)] == []
