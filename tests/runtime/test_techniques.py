"""The page of techniques is complete, and each technique is tested."""

from collections.abc import Collection

import pytest

from .techniques import (
    MOST_RANKS,
    TECHNIQUES,
    TESTED_ELSEWHERE,
    in_every_run,
    in_full_run,
    pages,
    pairs_and_values,
    parity_cases,
    techniques_of,
)


def test_the_page_has_a_row_for_each_technique():
    [text] = pages().values()
    names = [name for group in TECHNIQUES.values() for name in group]
    assert [name for name in names if text.count(f"\n| {name} | ") != 1] == []


@pytest.mark.parametrize("names", [parity_cases(), in_every_run()], ids=["some case", "a case of every run"])
def test_every_technique_has_a_parity_case(names: Collection[str]):
    found = set().union(*(techniques_of(parity_cases()[name]) for name in names))
    assert [name for group in TECHNIQUES.values() for name in group if name not in found | TESTED_ELSEWHERE] == []


def test_the_full_run_has_a_case_of_each_pair_of_techniques_on_few_ranks():
    found = set().union(*(pairs_and_values(parity_cases()[name]) for name in (*in_every_run(), *in_full_run())))
    few = [plan for plan in parity_cases().values() if plan.candidate.layout.world_size <= MOST_RANKS]
    assert [part for plan in few for part in pairs_and_values(plan) if part not in found] == []
