"""Every example of the shipped deck succeeds, or raises its documented refusal."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from strategist.cards.card import Card
from strategist.cards.deck import load_deck
from strategist.contract.card_example import CardTest, ScriptOutcome
from strategist.executors.card_tests import run_tests
from strategist.paths import data_dir

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
DECK = load_deck(data_dir("cards"))


IN_EVERY_RUN = ("FSDP-001", "CP-001", "OFF-001")
"""An example on several ranks, and two that are refused."""
OF_LATER_TORCH = {
    "AC-005": "recomputes other operations",
    "CKPT-002": "loads no types",
    "DDP-005": "has CUDA, so nothing is refused",
    "NCCL-005": "has CUDA, so another refusal comes first",
    "PP-006": "gloo sends nothing to itself",
    "PP-007": "gloo sends nothing to itself",
    "PREC-003": "multiplies float8 with scales by row on no CPU",
}
"""Examples that behave differently in torch 2.11, or in its CUDA build."""


def parametrized(card: Card) -> Any:
    """A parameter with its marks."""
    marks = [] if card.id in IN_EVERY_RUN else [pytest.mark.full]
    if card.id in OF_LATER_TORCH and version("torch").startswith("2.11."):
        marks.append(pytest.mark.skip(reason=f"torch 2.11 {OF_LATER_TORCH[card.id]}"))
    return pytest.param(card, marks=marks)


CARDS = [parametrized(card) for card in DECK.cards]


@pytest.fixture(scope="session")
def tested(request: pytest.FixtureRequest) -> dict[str, CardTest]:
    """Test results of the selected cards."""
    chosen = [item.callspec.params["card"].id for item in request.session.items if item.path == Path(__file__) and "[" in item.name]
    return {test.card: test for test in run_tests([card for card in DECK.cards if card.id in {*chosen, *IN_EVERY_RUN}])}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)
def test_the_examples_of_a_card_run_as_documented(tested: dict[str, CardTest], card: Card) -> None:
    test = tested[card.id]
    assert test.examples == len(card.example) > 0
    assert [f"{failure.line}: {failure.message}" for failure in test.failures] == []
    assert test.refused == sum(bool(example.refused) for example in card.example)


def test_a_refusal_is_a_separate_outcome(tested: dict[str, CardTest]) -> None:
    assert {test.card for test in tested.values() if test.refused} >= {"CP-001", "OFF-001"}
    assert ScriptOutcome.REFUSED is not ScriptOutcome.PASSED
