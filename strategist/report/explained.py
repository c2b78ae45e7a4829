"""An explanation for people."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from strategist.contract.explanation import Alternative, Decision, Explanation, Obstacle
from strategist.contract.knobs import show_value
from strategist.contract.plan import Plan
from strategist.report.blocks import heading, pairs, section
from strategist.report.words import change_words, said

BY_COST = "no card asks for it; the cost model decided"
HARD = (Obstacle.ILLEGAL, Obstacle.FORBIDDEN, Obstacle.TOO_LARGE, Obstacle.HOST_TOO_SMALL)


def explanation_report(explanation: Explanation) -> Group:
    """Each setting with the card or cost that decided it."""
    return Group(*_blocks(explanation))


def _blocks(explanation: Explanation) -> Iterator[RenderableType]:
    yield _title(explanation.plan)
    for decision in explanation.decisions:
        if decision.reasons or decision.alternatives:
            yield section(heading(f"{decision.setting} = {show_value(decision.value)}"), pairs(_decision(decision)))
    if explanation.others:
        yield section(heading("Also said of it"), pairs((reason.card, said(reason)) for reason in explanation.others))


def why_not_report(plan: Plan, alternative: Alternative) -> Group:
    """What one other value would bring."""
    asked = f"why not {alternative.setting} = {show_value(alternative.value)}?"
    verdict = alternative.obstacle.value[0].upper() + alternative.obstacle.value[1:]
    lines: list[RenderableType] = [_title(plan), Text(""), Text.assemble((asked, "bold")), Text(f"{verdict}: {alternative.text}")]
    if alternative.plan is not None and alternative.obstacle not in HARD and alternative.plan != plan:
        lines.append(Text(f"That would be: {change_words(alternative.plan)}"))
    return Group(*lines)


def _title(plan: Plan) -> Text:
    name = f"plan {plan.id}: {plan.model.name} on {plan.cluster.name}"
    return Text.assemble((name, "bold"), f"  {change_words(plan)}")


def _decision(decision: Decision) -> Iterator[tuple[str, str]]:
    for reason in decision.reasons:
        yield reason.card, said(reason)
    if not decision.reasons:
        yield "cost", BY_COST
    for other in decision.alternatives:
        yield (
            f"not {show_value(other.value)}",
            other.text if other.obstacle is not Obstacle.FASTER else f"{other.text}, as predicted",
        )
