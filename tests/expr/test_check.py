"""Conditions that the expression language accepts, and its errors."""

from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from strategist.contract.settings import SETTING_CHOICES, SETTING_NAMES, full_name
from strategist.expr.check import condition, quantity, show_dimension
from strategist.expr.parse import ExpressionError
from strategist.expr.vocabulary import SETTINGS, UNITS, VOCABULARY, setting

DEEP = ("-" * 400 + "1 > 0", "not " * 100 + "model.is_moe", "(" * 240 + "1" + ")" * 240, "1" + "+1" * 200 + " > 0")
PIECES = (*"()[]<>=!+-*/%,.'\" ", "layout.tp", "knobs.recompute", "1", "2.5 GB", "and", "not", "in", "==", "min(")


@pytest.mark.parametrize(
    "text",
    [
        "layout.tp > 1", "1 < layout.tp <= 8", "knobs.reshard_after_forward == false", "not knobs.sequence_parallel",
        "knobs.recompute in ['none', \"full\"]", "layout.tp not in (1, 2)", "knobs.sequence_parallel == True",
        "cluster.inter_node_bytes_per_second < 25 GB/s", "25GB/s > cluster.inter_node_bytes_per_second",
        "model.parameter_bytes / layout.model_shards > 0.5 * device.memory_bytes", "observed.step_seconds > 1.5 s or model.is_moe",
        "34 B * model.hidden_size > 3 MiB", "divides(layout.tp, model.layers)", "max(layout.tp, layout.pp, 2) == ceil(2.5)",
        "model.layers // layout.pp % 2 == 0", "-1 < layout.tp - 2", "device.peak_flops > 100 TFLOPS", "'full' != knobs.recompute",
        "model.state_bytes / cluster.host_bytes_per_second < 2 min", "(layout.tp > 1\n and layout.pp > 1)",
    ],
)  # fmt: skip
def test_valid_conditions_are_accepted(text: str) -> None:
    assert condition(text).names <= set(VOCABULARY)


@pytest.mark.parametrize(
    ("text", "column", "kind", "words"),
    [
        ("layot.tp > 1", 0, "name", "did you mean layout.tp?"),
        ("1 < tp", 4, "name", "did you mean layout.tp?"),
        ("knobs.recompute == full", 19, "name", "text is quoted: 'full'"),
        ("knobs.recompute == 'ful'", 19, "type", "'ful' is not one of 'none', 'selective', 'every_second_layer', 'budget', 'full'"),
        ("knobs.reshard_after_forward == 'true'", 31, "type", "is not one of true, false"),
        ("knobs.recompute in ['none', 'x']", 28, "type", "'x' is not one of"),
        ("layout.tp > 24 GiB", 0, "unit", "> between a plain number and bytes"),
        ("layout.pp > 1 and device.memory_bytes + 1 s > 1 B", 18, "unit", "bytes and s"),
        ("cluster.inter_node_bytes_per_second < 25 GB", 0, "unit", "bytes/s and bytes"),
        ("model.state_bytes > 3 Gib", 22, "syntax", "did you mean GiB?"),
        ("not layout.tp", 4, "type", "needs conditions"),
        ("layout.tp + model.is_moe > 1", 12, "type", "needs numbers"),
        ("layout.tp == true", 0, "type", "cannot equal"),
        ("layout.tp", 0, "type", "true or false is needed"),
        ("layout.tp ** 2 > 1", 0, "syntax", "pow"),
        ("layout.tp is 1", 0, "syntax", "not with is"),
        ("f(1) > 1", 0, "syntax", "the functions are"),
        ("__import__('os')", 0, "syntax", "the functions are"),
        ("min(1) > 0", 0, "syntax", "min takes 2 to 8"),
        ("layout.tp.real > 1", 0, "syntax", "two parts"),
        ("[x for x in layout.tp]", 0, "syntax", "listcomp"),
        ("layout.tp in knobs", 13, "syntax", "a list of values"),
        ("layout.tp in [layout.pp]", 14, "syntax", "plain values"),
        ("layout.tp > 1; 2", 13, "syntax", "';' has no meaning"),
        ("layout.tp > '\\x41'", 12, "syntax", "has no meaning"),
        ("层数 > 1", 0, "syntax", "has no meaning"),
        ("1e999 > layout.tp", 0, "syntax", "not a value"),
        ("layout.tp == None", 13, "syntax", "None is not a value"),
        ("sqrt(estimate.step_seconds) > 1 s", 0, "unit", "sqrt of s has no unit"),
        ("", 0, "syntax", "not an expression"),
        ("layout.tp >", 0, "syntax", "not an expression"),
        ("layout.tp > 1" + " " * 500, 0, "syntax", "at most 500"),
    ],
)
def test_an_error_has_a_column_a_kind_and_a_message(text: str, column: int, kind: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        condition(text)
    assert words in caught.value.message
    assert (caught.value.column, caught.value.kind) == (column, kind)


@pytest.mark.parametrize("text", DEEP)
def test_deep_nesting_is_refused_or_bounded(text: str) -> None:
    with pytest.raises(ExpressionError):
        condition(text)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_text_is_accepted_or_raises_an_expression_error(parts: list[str]) -> None:
    with suppress(ExpressionError):
        assert condition("".join(parts)).names <= set(VOCABULARY)


def test_a_quantity_is_a_number_and_not_a_condition() -> None:
    assert quantity("knobs.micro_batch * 2").names == {"knobs.micro_batch"}
    with pytest.raises(ExpressionError, match="a number is needed"):
        quantity("layout.tp > 1")


def test_an_expression_knows_its_phases() -> None:
    assert condition("model.is_moe").phases == {"request"}
    assert condition("layout.tp > 1 and observed.mfu > 0.1").phases == {"candidate", "observed"}


def test_the_vocabulary_covers_every_setting_with_its_choices() -> None:
    assert set(SETTINGS) == {full_name(name) for name in SETTING_NAMES}
    for name, choices in SETTING_CHOICES.items():
        assert VOCABULARY[full_name(name)].choices == choices
    for entry in VOCABULARY.values():
        assert entry.unit in UNITS
        assert entry.doc.endswith(".")
    assert (VOCABULARY["estimate.comm_ratio"].high, VOCABULARY["estimate.mfu"].high) == (1, None)
    tp, recompute = setting("tp"), setting("knobs.recompute")
    assert tp is not None
    assert tp.name == "layout.tp"
    assert recompute is not None
    assert setting("layout.world_size") is None, "derived names cannot be set"


def test_dimensions_are_shown_in_readable_units() -> None:
    assert show_dimension(UNITS["bytes/s"]) == "bytes/s"
    assert show_dimension(UNITS["tokens/s"]) == "1/s"
    assert show_dimension((2, 0, 0)) == "bytes^2"
    assert show_dimension(UNITS["ratio"]) == "a plain number"
