"""The page of techniques: as generated, and none of them untested."""

import pytest

from .cases import cases
from .techniques import ELSEWHERE, PAGE, TECHNIQUES, in_every_run, page


def test_the_published_page_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == page(), "make docs"


@pytest.mark.parametrize("names", [None, in_every_run()], ids=["some case", "a case of every run"])
def test_every_technique_trains_as_one_process_does(names: list[str] | None):
    plans = [plan for name, plan in cases() if (name in names if names else not name.startswith("reference"))]
    techniques = {name: used for group in TECHNIQUES.values() for name, used in group.items() if name not in ELSEWHERE}
    assert [name for name, used in techniques.items() if not any(used(plan) for plan in plans)] == []
