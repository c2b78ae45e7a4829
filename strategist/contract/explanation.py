"""Explanation: what decided each setting of a plan, and the reasons against its other values."""

from dataclasses import dataclass, field
from enum import StrEnum

from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan, Reason


class Obstacle(StrEnum):
    """Reason against an alternative, the strongest first."""

    ILLEGAL = "illegal"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too large"
    HOST_TOO_SMALL = "host too small"
    SLOWER = "slower"
    EQUAL = "equally fast"
    FASTER = "faster"


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """The best plan of a request; where none fits, the allowed one that is nearest to fitting.

    Where nothing is allowed, the ``cards`` without which something would be, with the ``policy`` of the first and its words; where
    nothing is legal, the ``law``.
    """

    plan: Plan | None = None
    law: str = ""
    cards: tuple[str, ...] = ()
    policy: str = ""
    because: str = ""


@dataclass(frozen=True, kw_only=True)
class WhyNot:
    """Another value of a setting: what stands against it, in words with numbers, and the plan that it would be, if legal.

    A forbidden one names the policy, and the ``facts`` on which it acts, by vocabulary name; None is unknown.
    """

    setting: str
    value: KnobValue
    obstacle: Obstacle
    text: str
    plan: Plan | None = None
    card: str = ""
    policy: str = ""
    facts: dict[str, float | KnobValue | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One setting: its value, the cards that asked for it, and the alternatives; without a card, cost decided.

    ``step`` is the id of the flow's step that decides it, empty where none does. ``changes_convergence`` says that the trained
    model may differ for this value.
    """

    setting: str
    value: KnobValue
    reasons: tuple[Reason, ...]
    why_not: tuple[WhyNot, ...]
    step: str = ""
    changes_convergence: bool = False


@dataclass(frozen=True, kw_only=True)
class ExplainedStep:
    """One step of the flow that orders the decisions: which cards it asks, by what rule, and why it comes where it does."""

    id: str
    title: str
    rule: str
    cards: tuple[str, ...]
    because: str


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice of a card without conditions on settings of the plan; it changes nothing."""

    card: str
    settings: tuple[str, ...]
    intent: str
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All decisions of a plan, and reasons that are about no single setting.

    Decisions are in the order of ``flow``, step by step, those that no step names last. ``deck`` is the digest of the cards and
    flows that explain; ``not_as_shipped`` says which cards were added, replaced or left out.
    """

    plan: Plan
    decisions: tuple[Decision, ...]
    others: tuple[Reason, ...]
    flow: str = ""
    steps: tuple[ExplainedStep, ...] = ()
    advice: tuple[Advice, ...] = ()
    deck: str = ""
    not_as_shipped: tuple[str, ...] = ()
