"""Plans without the parts of an answer that their tests do not read."""

from dataclasses import replace
from typing import Any

from formats.plans import deck

from strategist.cards.deck import Deck
from strategist.contract.answer import Answer
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.planning.planner import answer_stages, ranked
from strategist.profiles.situation import situation

BIG = Request(model="32b", gpus="8x24GB")
SMALL = Request(model="8b", gpus="4x80GB", workload=Workload(global_batch=16))
FEW: dict[str, Any] = {"pp": 1, "compile": True}
"""Fixed settings that leave a third of the candidates."""
NARROW = replace(SMALL, fix={"pp": 1, "cp": 1, "compile": True, "recompute": "none"})
"""Few candidates, so that a ranking takes little time."""


def best(request: Request, cards: Deck | None = None) -> Plan:
    """The first plan of the answer to a request. Without alternatives, which take most of an answer's time."""
    return ranked(situation(request), deck=cards or deck(), limit=1)[0]


def answer_of(request: Request, cards: Deck | None = None, top: int = 5) -> Answer:
    """The answer to a request; without alternatives if something fits."""
    return next(answer_stages(request, deck=cards or deck(), top=top))
