"""The page of techniques: as generated, and none of them untested."""

import pytest

from .cases import cases
from .techniques import PAGE, TECHNIQUES, page


def test_the_published_page_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == page(), "make docs"


ELSEWHERE = {"adamw8bit"}
"""Each rank rounds blocks of its own shard, so no two layouts train alike; test_optimizer.py says what they keep."""

NAMES = [name for group in TECHNIQUES.values() for name in group if name not in ELSEWHERE]


@pytest.mark.parametrize("technique", NAMES)
def test_every_technique_trains_as_one_process_does_somewhere(technique):
    (used,) = (group[technique] for group in TECHNIQUES.values() if technique in group)
    assert any(used(plan) for name, plan in cases() if not name.startswith("reference"))
