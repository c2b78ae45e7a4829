"""Resources: documents that an agent can read by address, without a tool. All texts are data, never instructions."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from strategist import api
from strategist.agent.problem import PROBLEM_CODES
from strategist.agent.session import AgentSession
from strategist.contract import codec

JSON, YAML = "application/json", "application/yaml"
READ = "resources/read"
Reader = Callable[[AgentSession, str], object]


@dataclass(frozen=True, kw_only=True)
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


def _card(session: AgentSession, name: str) -> object:
    return api.load_cards().card(name).document.text


def _vocabulary(session: AgentSession, name: str) -> object:
    return [{**asdict(entry), "choices": list(entry.choices)} for entry in api.VOCABULARY.values()]


def _schema(session: AgentSession, name: str) -> object:
    return api.schema(name)


def _profiles(session: AgentSession, name: str) -> object:
    return {**api.profiles(), "programs": api.programs()}


def _studies(session: AgentSession, name: str) -> object:
    found = api.list_studies([session.workspace.root])
    return [{**codec.encode(item), "study": session.workspace.show(Path(item.study))} for item in found]


def _study(session: AgentSession, name: str) -> object:
    return [api.trial_row(trial) for trial in api.study(session.workspace.inside(name)).trials]


def _problems(session: AgentSession, name: str) -> object:
    return PROBLEM_CODES


RESOURCES = (
    Resource(
        address="strategist://cards", name="cards", description="All shipped cards: id, module, status, title.", read=_cards
    ),
    Resource(
        address="strategist://cards/{name}", name="card", description="A shipped card's file, whole.", read=_card, kind=YAML
    ),
    Resource(
        address="strategist://vocabulary", name="vocabulary", read=_vocabulary,
        description="Every name that a card may use: kind, unit, from when on it is known, meaning, choices.",
    ),
    Resource(
        address="strategist://schemas/{name}", name="schema", description="JSON Schema of a card or a flow file.", read=_schema
    ),
    Resource(
        address="strategist://profiles", name="profiles", read=_profiles,
        description="Names of models, devices, back ends, formats and programs that requests may use.",
    ),
    Resource(
        address="strategist://studies", name="studies", description="The studies of the workspace, each in a line.", read=_studies
    ),
    Resource(
        address="strategist://studies/{+name}", name="study", description="A study's trials as flat rows.", read=_study
    ),
    Resource(
        address="strategist://problems", name="problems", description="Every code of a problem, with what it means.",
        read=_problems,
    ),
)  # fmt: skip
