"""Card: one piece of engineering knowledge, with what it does to a plan and where it comes from."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from strategist.contract.knobs import KnobValue
from strategist.expr.check import Expression
from strategist.files.yaml_file import Document


class Status(StrEnum):
    PREVIEW = "preview"
    STABLE = "stable"
    DEPRECATED = "deprecated"


class Phase(StrEnum):
    PLAN = "plan"
    OBSERVE = "observe"


class EffectKind(StrEnum):
    REQUIRE = "require"
    FORBID = "forbid"
    SET = "set"
    PREFER = "prefer"
    TRY = "try"
    WARN = "warn"


ROOT = "StrategyCard"
"""The key of a card in its file."""

HARD = (EffectKind.REQUIRE, EffectKind.FORBID)

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")
"""Of the words of cards, as ISO 639-1 has them."""


@dataclass(frozen=True)
class Text:
    """Words for people, by language; a language that is missing reads as the other."""

    en: str = ""
    zh: str = ""

    def __str__(self) -> str:
        return self.en or self.zh

    def __bool__(self) -> bool:
        return bool(self.en or self.zh)

    def show(self, language: str) -> str:
        """The words in one of LANGUAGES."""
        return str(self) if language == ENGLISH else self.zh or self.en


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Condition under which a card applies. Without ``when`` it is advice to people."""

    when: Expression | None = None
    text: Text = Text()


@dataclass(frozen=True, kw_only=True)
class ControlPoint:
    """A setting that the card is about; ``path`` is its full name, empty where the card names none."""

    name: str
    path: str = ""
    values: tuple[KnobValue, ...] = ()
    changes: str = "execution"
    effect: Text = Text()


@dataclass(frozen=True, kw_only=True)
class Observable:
    """What to watch; ``metric`` is its full name, empty where the card names none."""

    name: str
    metric: str = ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting by full name and its values; ``change`` is a quantity to compute the value from."""

    path: str
    values: tuple[KnobValue, ...] = ()
    change: Expression | None = None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a policy does. No settings means the candidates for which its ``when`` holds (``forbid: candidate``)."""

    kind: EffectKind
    settings: tuple[Setting, ...] = ()

    def without(self, free: Collection[str]) -> "Effect":
        """The effect less settings that are ``free``."""
        settings = tuple(setting for setting in self.settings if setting.path not in free) if free else self.settings
        return self if len(settings) == len(self.settings) else Effect(kind=self.kind, settings=settings)

    def speaks_of(self, names: Collection[str]) -> bool:
        """Whether all its settings are among these, and none is computed for each candidate."""
        return all(setting.path in names and not setting.change for setting in self.settings)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A rule: while ``when`` holds (always, if absent), its effects act ``because`` of something. No effects: advice to people."""

    id: str
    phase: Phase = Phase.PLAN
    when: Expression | None = None
    effects: tuple[Effect, ...] = ()
    because: Text = Text()


@dataclass(frozen=True, kw_only=True)
class Risk:
    """What can go wrong while ``when`` holds, and what to fall back to."""

    id: str
    when: Expression | None = None
    text: Text = Text()
    fallback: tuple[Setting, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceRef:
    """Where the knowledge comes from: a symbol of torch (and its parameter), an address, or words.

    ``lines`` are the first and last line of the symbol's source that the author read; None where none are given.
    """

    symbol: str = ""
    parameter: str = ""
    lines: tuple[int, int] | None = None
    url: str = ""
    note: Text = Text()


@dataclass(frozen=True, kw_only=True)
class Example:
    """The card's knowledge as a program: a whole script for so many ranks on CPU. Without ``run`` it is advice to people.

    ``refused`` are words of the error that a machine without an accelerator must give, with `` | `` between what versions say
    otherwise; empty where the script must pass.
    """

    run: str = ""
    ranks: int = 1
    refused: str = ""
    text: Text = Text()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A recorded finding for or against the card, with its source."""

    text: Text
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """Another card that bears on this one, and how."""

    card: str
    text: Text = Text()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A test of the card by rules alone: facts and a candidate, and what the card must say of them.

    ``verdict`` is forbidden or allowed; or ``reasons`` are the policies and risks that speak; or ``proposes`` are the changes.
    """

    facts: dict[str, Any]
    candidate: dict[str, Any]
    verdict: str = ""
    reasons: tuple[str, ...] | None = None
    proposes: dict[str, KnobValue] | None = None


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card. ``document`` is the file that it was read from, for positions and identity."""

    id: str
    module: str
    intent: Text
    title: Text = Text()
    status: Status = Status.PREVIEW
    since: str = ""
    validated_on: tuple[str, ...] = ()
    preconditions: tuple[Condition, ...] = ()
    control_points: tuple[ControlPoint, ...] = ()
    observables: tuple[Observable, ...] = ()
    policies: tuple[Policy, ...] = ()
    risks: tuple[Risk, ...] = ()
    interactions: tuple[Interaction, ...] = ()
    evidence: tuple[Claim, ...] = ()
    source_refs: tuple[SourceRef, ...] = ()
    example: tuple[Example, ...] = ()
    cases: tuple[Case, ...] = ()
    document: Document = field(repr=False, compare=False)

    @cached_property
    def canonical(self) -> str:
        """What the file says of the card, as JSON: equal for equal content, however the file is laid out."""
        return canonical(self.sections)

    @property
    def sections(self) -> dict[str, Any]:
        """What the file says of the card, by section."""
        found: dict[str, Any] = self.document.data[ROOT]
        return found

    @property
    def acts(self) -> bool:
        """Whether a machine can act on it; a card of words alone is advice."""
        return any(policy.effects for policy in self.policies)

    def policy(self, policy_id: str) -> Policy | None:
        """The policy of that id."""
        return next((policy for policy in self.policies if policy.id == policy_id), None)


def canonical(content: object) -> str:
    """Equal JSON for equal plain data."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
