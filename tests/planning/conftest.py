"""The shipped cards, and the answer that several tests read."""

import pytest
from formats import plans

from planning.plans import BIG
from strategist.cards.deck import Deck
from strategist.contract.answer import Answer
from strategist.planning.planner import answer


@pytest.fixture(scope="session")
def deck() -> Deck:
    return plans.deck()


@pytest.fixture(scope="session")
def big(deck: Deck) -> Answer:
    return answer(BIG, deck=deck)
