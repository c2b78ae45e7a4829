"""DecisionFlow: the order in which engineers decide the settings of a plan; explanations follow it."""

from dataclasses import field

from strategist.cards.card import Text
from strategist.expr.check import Expression
from strategist.expr.evaluate import Facts, scalar
from strategist.files.yaml_file import Document
from strategist.frozen import frozen

FLOW_ROOT = "DecisionFlow"
FLOW_FIELDS = ("id", "title", "intent", "steps")
STEP_FIELDS = ("id", "title", "decides", "when", "rule", "because")
RULE_FIELDS = ("text", "cards")


@frozen
class Step:
    """One step: the settings that it decides, by full name, and the ids of the cards that it uses.

    A step whose ``when`` is false is skipped; unknown does not skip it.
    """

    id: str
    title: Text
    decides: tuple[str, ...]
    when: Expression | None
    rule: Text
    cards: tuple[str, ...]
    because: Text


@frozen
class Flow:
    """Steps in order; each setting is in at most one step. ``document`` is the source file."""

    id: str
    title: Text
    intent: Text
    steps: tuple[Step, ...]
    document: Document = field(repr=False, compare=False)

    def active_steps(self, facts: Facts) -> tuple[Step, ...]:
        """Steps that are not skipped, given these facts."""
        return tuple(step for step in self.steps if step.when is None or scalar(step.when, facts) is not False)


def is_flow(document: Document) -> bool:
    """Whether the document is a flow rather than a card."""
    return isinstance(document.data, dict) and FLOW_ROOT in document.data
