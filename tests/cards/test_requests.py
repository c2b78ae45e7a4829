"""On a fixed set of requests, removing any card changes an answer; every setting belongs to a card."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml
from planning.plans import answer_of

from strategist.cards.card import Card
from strategist.cards.deck import Deck, load_deck
from strategist.contract.answer import Answer
from strategist.contract.request import Request
from strategist.contract.settings import settings_of
from strategist.expr.columns import row_of
from strategist.expr.vocabulary import SETTINGS
from strategist.paths import data_dir
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.request_file import load_request
from strategist.rules.observe_policies import observed_proposals
from strategist.search.facts import situation_facts

DECK = load_deck(data_dir("cards"))
ENTRIES = yaml.safe_load((Path(__file__).parent / "requests.yaml").read_text(encoding="utf-8"))
FIRST = {card: entry["name"] for entry in ENTRIES for card in (*entry.get("cards", ()), *entry.get("full", ()))}
"""The request that is tried first for a card; the others follow by their number of devices, so that the slowest come last."""
SLOW = {card for entry in ENTRIES for card in entry.get("full", ())}


@dataclass(frozen=True)
class Fixed:
    """A request, and observed figures of a trial of the best plan (by names of ``observed.*``)."""

    name: str
    request: Request
    observed: dict[str, Any]

    @cached_property
    def devices(self) -> int:
        """How many devices the request has."""
        return resolve_cluster(self.request.gpus).devices

    @cached_property
    def full_answer(self) -> Answer:
        """The answer with all cards."""
        return answer_of(self.request, DECK, top=3)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fixed, ...]:
    return tuple(_fixed(tmp_path_factory.mktemp("requests")))


def _fixed(folder: Path) -> Iterator[Fixed]:
    for entry in ENTRIES:
        path = folder / "request.yaml"
        path.write_text(yaml.safe_dump(entry["request"]), encoding="utf-8")
        yield Fixed(entry["name"], load_request(path), entry.get("observed", {}))


def verdict(found: Answer) -> dict[str, Any]:
    """Parts of an answer that a user sees: plans, remaining candidates, and warnings."""
    best = found.plans[0] if found.plans else None
    return {
        "plans": [settings_of(plan.candidate) for plan in found.plans],
        "left": found.candidates - sum(drop.candidates for drop in found.dropped),
        "warnings": [(reason.policy, reason.text) for reason in best.reasons if reason.effect == "warn"] if best else [],
    }


def proposals(one: Fixed, deck: Deck) -> list[Any]:
    """Proposals after a trial of the best plan with all cards."""
    if not one.observed:
        return []
    best = one.full_answer.plans[0]
    facts = situation_facts(best.model, best.cluster, best.workload) | {
        f"observed.{name}": value for name, value in one.observed.items()
    }
    return [proposal.changes for proposal in observed_proposals(deck, facts, row_of(best.candidate, best.accumulation))]


@pytest.mark.parametrize(
    "card", [pytest.param(card, marks=[pytest.mark.full] if card.id in SLOW else [], id=card.id) for card in DECK.cards]
)
def test_removing_a_card_changes_an_answer(card: Card, fixed: tuple[Fixed, ...]) -> None:
    without = DECK.without(card.id)
    for one in sorted(fixed, key=lambda one: (one.name != FIRST.get(card.id), one.devices)):
        if proposals(one, without) != proposals(one, DECK):
            return
        if verdict(answer_of(one.request, without, top=3)) != verdict(one.full_answer):
            return
    pytest.fail(f"{card.id} changes no verdict on any of the requests")


def test_each_card_is_listed_for_one_request() -> None:
    listed = [card for entry in ENTRIES for name in ("cards", "full") for card in entry.get(name, ())]
    assert sorted(listed) == sorted(card.id for card in DECK.cards), "tests/cards/requests.yaml lists each once"


def test_every_setting_belongs_to_a_card() -> None:
    named = {point.path for card in DECK.cards for point in card.control_points}
    assert set(SETTINGS) - named == set()


def test_every_shipped_card_has_effects() -> None:
    assert len(DECK.cards) >= 50
    for card in DECK.cards:
        assert card.acts
        assert all(policy.effects for policy in card.policies)
