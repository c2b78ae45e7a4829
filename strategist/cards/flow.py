"""DecisionFlow: the order in which engineers decide the settings of a plan; explanations follow it."""

from dataclasses import dataclass, field

from strategist.cards.card import Text
from strategist.expr.check import Expression
from strategist.expr.evaluate import Facts, scalar
from strategist.files.yaml_file import Document

FLOW_ROOT = "DecisionFlow"
FLOW_FIELDS = ("id", "title", "intent", "steps")
STEP_FIELDS = ("id", "title", "decides", "when", "rule", "because")
RULE_FIELDS = ("text", "cards")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: the settings that it decides, by full name, and the cards that it asks.

    A step whose ``when`` surely does not hold is skipped.
    """

    id: str
    title: Text
    decides: tuple[str, ...]
    when: Expression | None
    rule: Text
    cards: tuple[str, ...]
    because: Text


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Steps in order, no setting in two of them. ``document`` is the file that it was read from."""

    id: str
    title: Text
    intent: Text
    steps: tuple[Step, ...]
    document: Document = field(repr=False, compare=False)

    def active_steps(self, facts: Facts) -> tuple[Step, ...]:
        """The steps that are not skipped where these facts are known."""
        return tuple(step for step in self.steps if step.when is None or scalar(step.when, facts) is not False)


def is_flow(document: Document) -> bool:
    """Whether the document is a flow rather than a card."""
    return isinstance(document.data, dict) and FLOW_ROOT in document.data
