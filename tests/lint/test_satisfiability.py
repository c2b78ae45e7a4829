"""Conditions proven impossible never hold; satisfiable conditions with independent terms are found."""

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from strategist.expr.check import condition
from strategist.expr.evaluate import scalar
from strategist.expr.vocabulary import VOCABULARY
from strategist.lint.satisfiability import decided_regions, fails, holds, intersection, is_impossible
from strategist.lint.value_sets import Domain, Span, choice_domain, comparison_spans, spans_without, universe

NUMBERS = ("layout.tp", "layout.pp", "model.layers", "observed.comm_ratio")
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
ATOMS = st.one_of(
    st.tuples(st.sampled_from(NUMBERS), SIGNS, st.sampled_from(["0", "1", "2", "3", "0.5"])).map(" ".join),
    st.tuples(st.sampled_from(NUMBERS[:3]), SIGNS, st.sampled_from(NUMBERS[:3])).map(" ".join),
    st.sampled_from(["layout.tp * layout.pp", "layout.tp + layout.pp"]).flatmap(
        lambda term: st.sampled_from([f"{term} > 3", f"{term} <= 3", f"4 < {term}"])
    ),
    st.sampled_from(["model.is_moe", "model.is_moe == false", "knobs.recompute == 'full'", "knobs.recompute in ['none', 'full']"]),
    st.sampled_from(["layout.tp in [1, 2]", "not layout.tp in [2, 3]", "divides(layout.tp, model.layers)"]),
)  # fmt: skip
CONDITIONS = st.recursive(
    ATOMS,
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from([" and ", " or "]), parts).map(lambda part: f"({''.join(part)})"),
        parts.map(lambda part: f"not ({part})"),
    ),
    max_leaves=6,
)


def row(chance: random.Random) -> dict[str, Any]:
    """Random values of the names in the conditions; some are unknown."""
    values: dict[str, Any] = {name: chance.choice((1, 2, 3, 4, 5)) for name in NUMBERS[:3]}
    values["observed.comm_ratio"] = chance.choice((0.0, 0.25, 0.5, 0.75, 1.0))
    values["model.is_moe"] = chance.choice((True, False))
    values["knobs.recompute"] = chance.choice(VOCABULARY["knobs.recompute"].choices)
    return {name: value for name, value in values.items() if chance.random() > 0.15}


@given(text=CONDITIONS, other=CONDITIONS, seed=st.integers(0, 10**6))
@settings(max_examples=50)
def test_a_condition_that_holds_is_never_proven_impossible(text: str, other: str, seed: int) -> None:
    one, two = condition(text), condition(other)
    never, always = is_impossible(lambda: holds(one)), is_impossible(lambda: holds(one, False))
    implied = is_impossible(lambda: intersection(holds(one), fails(two)))
    chance = random.Random(seed)
    for _ in range(40):
        facts = row(chance)
        value = scalar(one, facts)
        assert not (never and value is True), (text, facts)
        assert not (always and value is False), (text, facts)
        assert not (implied and value is True and scalar(two, facts) is not True), (text, other, facts)


@pytest.mark.parametrize(
    ("text", "holding", "failing"),
    [
        ("layout.tp > 4 and layout.tp < 2", False, True),
        ("layout.tp > 4 and layout.tp < 5", False, True),
        ("layout.tp > 4 and layout.tp < 6", True, True),
        ("observed.comm_ratio > 0.4 and observed.comm_ratio < 0.5", True, True),
        ("device.memory_bytes > 1 GiB and device.memory_bytes < 1.1 GiB", True, True),
        ("knobs.recompute == 'full' and knobs.recompute == 'none'", False, True),
        ("knobs.recompute != 'full' or knobs.recompute != 'none'", True, False),
        ("layout.tp > 1 or layout.tp <= 1", True, False),
        ("layout.pp > layout.tp and layout.tp > layout.pp", False, True),
        ("layout.pp >= layout.tp and layout.tp >= layout.pp", True, True),
        ("layout.pp * layout.tp > 8 and not layout.pp * layout.tp > 4", False, True),
        ("2 < layout.tp < 3", False, True),
        ("model.is_moe and model.is_moe == false", False, True),
        ("layout.tp in [1, 2] and layout.tp not in [2, 3] and layout.tp > 1", False, True),
        ("divides(2, layout.tp) and not divides(2, layout.tp)", False, True),
        ("true and layout.tp > 1", True, True),
        ("layout.tp > 1 and false", False, True),
        ("layout.tp == layout.tp + 0 and layout.tp != layout.tp + 0", False, True),
    ],
)
def test_conditions_that_can_hold_or_fail_are_recognised(text: str, holding: bool, failing: bool) -> None:
    checked = condition(text)
    assert (bool(holds(checked)), bool(holds(checked, False))) == (holding, failing)


def test_an_unknown_value_neither_holds_nor_fails() -> None:
    one, two = condition("layout.tp > 4"), condition("layout.tp > 4 or model.is_moe")
    assert is_impossible(lambda: intersection(holds(one), fails(two)))
    assert not is_impossible(lambda: intersection(holds(two), fails(one)))  # tp may be unknown, or small
    always = condition("layout.tp > 1 or layout.tp <= 1")
    assert is_impossible(lambda: holds(always, False))
    assert not is_impossible(lambda: fails(always))  # tp unknown


def test_a_condition_with_too_many_regions_is_not_analysed() -> None:
    axes = [f"layout.{axis}" for axis in ("pp", "cp", "tp", "ep", "dp_shard", "dp_replicate")]
    text = " and ".join(f"({axis} > 2 or {axis} * 2 == 1 or model.layers > {number})" for number, axis in enumerate(axes))
    checked = condition(text)
    assert decided_regions(lambda: holds(checked)) == ()
    assert not is_impossible(lambda: holds(checked))


def test_domains_intersect_and_samples_lie_within() -> None:
    tp = universe(VOCABULARY["layout.tp"])
    above = tp.meet(Domain(spans=comparison_spans(">", 4), integral=True))
    assert above.spans is not None
    assert above.spans[0].low == 5
    assert above.samples()[0] == 5
    assert all(isinstance(value, int) and value >= 5 for value in above.samples())
    assert above.meet(Domain(spans=comparison_spans("<", 5), integral=True)).empty
    assert not tp.meet(Domain(spans=spans_without((1, 2)), integral=True)).within((3,))
    assert tp.meet(Domain(spans=comparison_spans("==", 2), integral=True)).within((2, 3))
    assert not choice_domain((True,)).within((1,))
    assert Domain(spans=(Span(0, 1, True, True),)).samples()
    assert all(0 < value < 1 for value in Domain(spans=(Span(0, 1, True, True),)).samples())
