"""Explanation: what decided each setting of a plan, and what stands against the others."""

from dataclasses import dataclass
from enum import StrEnum

from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan, Reason


class Obstacle(StrEnum):
    """What stands against an alternative, the hardest first."""

    ILLEGAL = "illegal"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too large"
    HOST_TOO_SMALL = "host too small"
    SLOWER = "slower"
    EQUAL = "equally fast"
    FASTER = "faster"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another value of a setting: what stands against it, in words with numbers, and the plan that it would be, if legal."""

    setting: str
    value: KnobValue
    obstacle: Obstacle
    text: str
    plan: Plan | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One setting: its value, the cards that asked for it, and the alternatives; without a card, cost decided."""

    setting: str
    value: KnobValue
    reasons: tuple[Reason, ...]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All decisions of a plan, and reasons that are about no single setting."""

    plan: Plan
    decisions: tuple[Decision, ...]
    others: tuple[Reason, ...]
