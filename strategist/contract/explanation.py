"""Explanation: what decided each setting of a plan, and the reasons against its other values."""

from dataclasses import field
from enum import StrEnum

from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Plan, Reason
from strategist.frozen import frozen

EQUAL_MARGIN = 0.005
"""Difference of steps, as a share, below which two plans count as equally fast."""


class Obstacle(StrEnum):
    """Reason against another value of a setting, strongest first."""

    ILLEGAL = "illegal"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too large"
    HOST_TOO_SMALL = "host too small"
    SLOWER = "slower"
    EQUAL = "equally fast"
    FASTER = "faster"


@frozen
class Nearest:
    """The best plan of a request; where no plan fits, the allowed plan that is nearest to fitting.

    Where cards forbid everything, ``plan`` is None and ``cards`` are those whose removal would allow a plan; ``policy`` and
    ``because`` are of the first. Where no candidate is legal, ``law`` is the violated constraint.
    """

    plan: Plan | None = None
    law: str = ""
    cards: tuple[str, ...] = ()
    policy: str = ""
    because: str = ""


@frozen
class WhyNot:
    """Another value of a setting: the reason against it, in words with numbers, and the plan with it (None where it is not legal).

    For a forbidden value, ``card`` and ``policy`` forbid it, and ``facts`` are the values that the policy depends on, by vocabulary
    name (None: unknown).
    """

    setting: str
    value: KnobValue
    obstacle: Obstacle
    text: str
    plan: Plan | None = None
    card: str = ""
    policy: str = ""
    facts: dict[str, float | KnobValue | None] = field(default_factory=dict)


@frozen
class Decision:
    """One setting: its value, the policies that chose it (none: the cost model, or a near tie of whole plans), and reasons against
    its other values.

    ``step`` is the id of the flow's step that decides it; empty where no step does. ``changes_convergence``: the trained model may
    differ because of this value.
    """

    setting: str
    value: KnobValue
    reasons: tuple[Reason, ...]
    why_not: tuple[WhyNot, ...]
    step: str = ""
    changes_convergence: bool = False


@frozen
class ExplainedStep:
    """One step of the flow that orders the decisions: its cards, its rule, and the reason for its place in the order."""

    id: str
    title: str
    rule: str
    cards: tuple[str, ...]
    because: str


@frozen
class Advice:
    """Advice of a card without machine-readable conditions, about settings of the plan; it changes nothing."""

    card: str
    settings: tuple[str, ...]
    intent: str
    texts: tuple[str, ...]


@frozen
class Explanation:
    """All decisions of a plan, and reasons that are not about a single setting (``others``).

    Decisions are in the order of ``flow``, step by step; settings without a step come last. ``deck`` is the digest of the cards and
    flows. ``not_as_shipped``: cards that were added, replaced or left out.
    """

    plan: Plan
    decisions: tuple[Decision, ...]
    others: tuple[Reason, ...]
    flow: str = ""
    steps: tuple[ExplainedStep, ...] = ()
    advice: tuple[Advice, ...] = ()
    deck: str = ""
    not_as_shipped: tuple[str, ...] = ()
