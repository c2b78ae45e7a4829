"""Resources: what an agent can read without a tool, by address. Texts are data, whoever wrote them."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from strategist import api
from strategist.agent.cards import card_text
from strategist.agent.problem import CODES, RefusedError
from strategist.agent.room import Room
from strategist.contract import codec
from strategist.expr.vocabulary import VOCABULARY

SCHEME = "strategist://"
JSON, YAML = "application/json", "application/yaml"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One address; with ``{}`` in it a form of many."""

    address: str
    name: str
    description: str
    kind: str = JSON


RESOURCES = (
    Resource(address="strategist://cards", name="cards", description="All shipped cards: id, module, status, title."),
    Resource(address="strategist://cards/{id}", name="card", description="A shipped card's file, whole.", kind=YAML),
    Resource(
        address="strategist://vocabulary", name="vocabulary",
        description="Every name that a card may speak of: kind, unit, from when on it is known, meaning, choices.",
    ),
    Resource(address="strategist://schemas/{kind}", name="schema", description="JSON Schema of a card or a flow file."),
    Resource(
        address="strategist://profiles", name="profiles",
        description="Names of models, devices, back ends, formats and programs that requests may use.",
    ),
    Resource(address="strategist://studies", name="studies", description="The studies of the workspace, each in a line."),
    Resource(address="strategist://studies/{path}", name="study", description="A study's trials as flat rows."),
    Resource(address="strategist://problems", name="problems", description="Every code of a problem, with what it means."),
)  # fmt: skip


def read(room: Room, address: str) -> tuple[str, str]:
    """A resource's kind and text.

    Raises:
        RefusedError, InputError, FileError: there is none, or it cannot be read.
    """
    if not address.startswith(SCHEME):
        raise _unknown(address)
    head, _, rest = address.removeprefix(SCHEME).partition("/")
    if rest:
        if head not in _MANY:
            raise _unknown(address)
        kind = next(item.kind for item in RESOURCES if item.address.startswith(f"{SCHEME}{head}/"))
        return kind, _MANY[head](room, rest)
    if head not in _ONE:
        raise _unknown(address)
    return JSON, json.dumps(_ONE[head](room), ensure_ascii=False, indent=1)


def _unknown(address: str) -> RefusedError:
    return RefusedError("unknown_tool", f"resource {address} is none", f"known are {', '.join(item.address for item in RESOURCES)}")


def _cards(room: Room) -> object:
    return [
        {"id": card.id, "module": card.module, "status": card.status.value, "title": str(card.title or card.intent)}
        for card in api.load_cards().cards
    ]


def _vocabulary(room: Room) -> object:
    return [{**asdict(name), "choices": list(name.choices)} for name in VOCABULARY.values()]


def _profiles(room: Room) -> object:
    return {**api.profiles(), "programs": api.programs()}


def _studies(room: Room) -> object:
    found = api.list_studies([room.workspace.root])
    return [{**codec.encode(item), "study": room.workspace.show(Path(item.study))} for item in found]


def _study(room: Room, path: str) -> str:
    study = api.study(room.workspace.inside(path))
    return json.dumps([api.trial_row(trial) for trial in study.trials], ensure_ascii=False, indent=1)


_ONE: dict[str, Callable[[Room], object]] = {
    "cards": _cards, "vocabulary": _vocabulary, "profiles": _profiles, "studies": _studies, "problems": lambda room: CODES,
}  # fmt: skip
_MANY: dict[str, Callable[[Room, str], str]] = {
    "cards": lambda room, name: card_text(api.load_cards(), name),
    "schemas": lambda room, name: json.dumps(api.schema(name), ensure_ascii=False, indent=1),
    "studies": _study,
}
