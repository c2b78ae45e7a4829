"""Command templates filled from a plan."""

import pytest

from strategist.expr.parse import ExpressionError
from strategist.programs.template import template

FACTS = {
    "layout.tp": 2,
    "layout.pp": 4,
    "model.layers": 32,
    "knobs.compile": True,
    "knobs.recompute": "full",
    "workload.train": "lora",
}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--tp={layout.tp}", "--tp=2"),
        ("{layout.tp * layout.pp}x", "8x"),
        ("{model.layers / layout.pp}", "8"),
        ("{ceil(model.layers / 3)}", "11"),
        ("{knobs.compile}/{knobs.recompute}/{workload.train}", "true/full/lora"),
        ('{{"tp": {layout.tp}}}', '{"tp": 2}'),
        ("{folder}/out", "/trial/out"),
        ("{environment.HOME}", "/home/me"),
        ("$(not a shell); {plan}", "$(not a shell); p.json"),
    ],
)
def test_placeholders_are_filled(text: str, filled: str) -> None:
    words = {"folder": "/trial", "plan": "p.json", "environment.HOME": "/home/me"}
    assert template(text).filled(FACTS, words) == filled


def test_a_template_lists_its_names_and_environment_variables() -> None:
    found = template("{layout.tp * layout.pp} {environment.HOME} {folder}")
    assert found.names == {"layout.tp", "layout.pp"}
    assert found.variables == {"HOME"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{layout.tpp}", r"layout\.tpp.*did you mean layout\.tp"),
        ("{foldr}", "unknown word foldr; did you mean folder"),
        ("{estimate.step_seconds}", "is not known before a trial"),
        ("{layout.tp + knobs.recompute}", "needs numbers"),
        ("{layout.tp", "has no partner"),
    ],
)
def test_invalid_templates_raise_an_error(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        template(text)
