"""Card: one piece of engineering knowledge, with its effects on plans and its sources."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from strategist.contract.knobs import KnobValue
from strategist.expr.check import Expression
from strategist.files.yaml_file import Document
from strategist.frozen import frozen


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
"""Root key of a card file."""

LAWS = (EffectKind.REQUIRE, EffectKind.FORBID)

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")
"""Languages of the cards' texts, as ISO 639-1 codes."""


@dataclass(frozen=True)
class Text:
    """A text by language; a missing language falls back to the other."""

    en: str = ""
    zh: str = ""

    def __str__(self) -> str:
        return self.en or self.zh

    def __bool__(self) -> bool:
        return bool(self.en or self.zh)

    def show(self, language: str) -> str:
        """The words in one of LANGUAGES."""
        return str(self) if language == ENGLISH else self.zh or self.en


@frozen
class Condition:
    """Precondition of a card. Without ``when`` it is advice to readers and always holds."""

    when: Expression | None = None
    text: Text = Text()


@frozen
class ControlPoint:
    """A setting that the card is about; ``path`` is its full name, empty for free text."""

    name: str
    path: str = ""
    values: tuple[KnobValue, ...] = ()
    changes: str = "execution"
    effect: Text = Text()


@frozen
class Observable:
    """A quantity to watch; ``metric`` is its vocabulary name, empty for free text."""

    name: str
    metric: str = ""


@frozen
class Setting:
    """A setting by full name and its values; with ``change``, the value is computed from this expression instead."""

    path: str
    values: tuple[KnobValue, ...] = ()
    change: Expression | None = None


@frozen
class Effect:
    """Effect of a policy; without settings, on all candidates for which the policy's ``when`` holds (``forbid: candidate``)."""

    kind: EffectKind
    settings: tuple[Setting, ...] = ()

    def without(self, free: Collection[str]) -> "Effect":
        """The effect less settings that are ``free``."""
        settings = tuple(setting for setting in self.settings if setting.path not in free) if free else self.settings
        return self if len(settings) == len(self.settings) else Effect(kind=self.kind, settings=settings)

    def sets_only(self, names: Collection[str]) -> bool:
        """Whether all its settings are among these, and none is computed for each candidate."""
        return all(setting.path in names and not setting.change for setting in self.settings)


@frozen
class Policy:
    """A rule: while ``when`` holds (always, if None), its effects apply; ``because`` is the reason.

    Without effects it is advice to readers.
    """

    id: str
    phase: Phase = Phase.PLAN
    when: Expression | None = None
    effects: tuple[Effect, ...] = ()
    because: Text = Text()


@frozen
class Risk:
    """A possible failure while ``when`` holds, and settings to fall back to."""

    id: str
    when: Expression | None = None
    text: Text = Text()
    fallback: tuple[Setting, ...] = ()


@frozen
class SourceRef:
    """Source of the knowledge: a torch symbol (and its parameter), a URL, or a text.

    ``lines``: first and last line of the symbol's source that the author read; None where not given.
    """

    symbol: str = ""
    parameter: str = ""
    lines: tuple[int, int] | None = None
    url: str = ""
    note: Text = Text()


@frozen
class Example:
    """Example of a card: a whole script for ``ranks`` processes on CPU. Without ``run`` it is a text for readers.

    ``refused``: text of the error that a machine without an accelerator must raise, with `` | `` between the wordings of different
    versions; empty where the script must succeed.
    """

    run: str = ""
    ranks: int = 1
    refused: str = ""
    text: Text = Text()


@frozen
class Claim:
    """A recorded finding for or against the card, with its source."""

    text: Text
    source: str = ""


@frozen
class Interaction:
    """Another card that affects this one, and how."""

    card: str
    text: Text = Text()


@frozen
class Case:
    """Test case of a card, evaluated by rules alone: facts, a candidate, and one of three expected results.

    ``verdict``: forbidden or allowed. ``reasons``: ids of the policies and risks that apply. ``proposes``: proposed changes.
    """

    facts: dict[str, Any]
    candidate: dict[str, Any]
    verdict: str = ""
    reasons: tuple[str, ...] | None = None
    proposes: dict[str, KnobValue] | None = None


@frozen
class Card:
    """One card. ``document`` is its source file, for positions and identity."""

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
        """Content of the card as canonical JSON: equal for equal content, whatever the file's layout."""
        return canonical(self.sections)

    @property
    def sections(self) -> dict[str, Any]:
        """Content of the card in its file, by section."""
        found: dict[str, Any] = self.document.data[ROOT]
        return found

    @property
    def acts(self) -> bool:
        """Whether any policy has effects; a card without effects is advice."""
        return any(policy.effects for policy in self.policies)

    def policy(self, policy_id: str) -> Policy | None:
        """The policy with this id; None where there is none."""
        return next((policy for policy in self.policies if policy.id == policy_id), None)


def canonical(content: object) -> str:
    """Canonical JSON: equal for equal plain data."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
