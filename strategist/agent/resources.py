"""Resources: documents that an agent can read by address, without a tool. All texts are data, never instructions."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from strategist import api
from strategist.agent.problem import PROBLEM_CODES
from strategist.agent.session import AgentSession
from strategist.contract import codec
from strategist.frozen import frozen

JSON, YAML = "application/json", "application/yaml"
READ = "resources/read"
Reader = Callable[[AgentSession, str], object]


@frozen
class Resource:
    """A document at an address; an address with ``{name}`` is a template for many.

    read: returns the content, a text or JSON data; it is called with the name in place of ``{name}``.
    """

    address: str
    name: str
    description: str
    read: Reader
    kind: str = JSON


def read(session: AgentSession, resource: str, name: str) -> str:
    """Text of the resource with this name; ``name`` fills its template.

    Raises:
        RefusedError, InputError, FileError: it does not exist, or cannot be read.
    """
    content = next(item for item in RESOURCES if item.name == resource).read(session, name)
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)


def _cards(session: AgentSession, name: str) -> object:
    return [
        {"id": card.id, "module": card.module, "status": card.status.value, "title": str(card.title or card.intent)}
        for card in api.load_cards().cards
    ]


def _studies(session: AgentSession, name: str) -> object:
    found = api.list_studies([session.workspace.root])
    return [{**codec.encode(item), "study": session.workspace.show(Path(item.study))} for item in found]


RESOURCES = (
    Resource(
        address="strategist://cards", name="cards", description="All shipped cards: id, module, status, title.", read=_cards
    ),
    Resource(
        address="strategist://cards/{name}", name="card", description="The whole file of a shipped card.", kind=YAML,
        read=lambda _, name: api.load_cards().card(name).document.text,
    ),
    Resource(
        address="strategist://vocabulary", name="vocabulary",
        read=lambda *_: [{**asdict(entry), "choices": list(entry.choices)} for entry in api.VOCABULARY.values()],
        description="Every name that a card may use: kind, unit, phase from which it is known, meaning, choices.",
    ),
    Resource(
        address="strategist://schemas/{name}", name="schema", description="JSON Schema of a card or a flow file.",
        read=lambda _, name: api.schema(name),
    ),
    Resource(
        address="strategist://profiles", name="profiles", read=lambda *_: {**api.profiles(), "programs": api.programs()},
        description="Names of models, devices, back ends, formats and programs that requests may use.",
    ),
    Resource(
        address="strategist://studies", name="studies", description="The studies of the workspace, one entry each.", read=_studies
    ),
    Resource(
        address="strategist://studies/{+name}", name="study", description="A study's trials as flat rows.",
        read=lambda session, name: [api.trial_row(trial) for trial in api.study(session.workspace.inside(name)).trials],
    ),
    Resource(
        address="strategist://problems", name="problems", description="All codes of problems, with their meaning.",
        read=lambda *_: PROBLEM_CODES,
    ),
)  # fmt: skip
