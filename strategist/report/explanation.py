"""Text of an explanation."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from strategist.contract.explanation import EQUAL_MARGIN, Advice, Decision, ExplainedStep, Explanation, Obstacle, WhyNot
from strategist.contract.knobs import show_value
from strategist.contract.plan import Plan
from strategist.profiles.heterogeneous_clusters import node_differences
from strategist.report.plan import bounds
from strategist.report.setting_text import change_words, layer_words, policy_words
from strategist.report.text_blocks import bullets, grouped, heading, pairs, section

BY_COST = "no card decides it; the cost model decided"
BY_TIE = "no card decides it; back ends, host memory and cards' preferences for the whole plan decided a near tie"
BY_HAND = "no card decides it and no price depends on it: it was chosen by hand"
OTHERS = ExplainedStep(id="", title="Other settings", rule="", cards=(), because="")
HARD = (Obstacle.ILLEGAL, Obstacle.FORBIDDEN, Obstacle.TOO_LARGE, Obstacle.HOST_TOO_SMALL)


@grouped
def explanation_report(explanation: Explanation) -> Iterator[RenderableType]:
    """Each setting with the card or cost that decided it."""
    yield _title(explanation.plan)
    yield from _node_differences(explanation.plan)
    yield from (Text(f"{name} {words}") for name, words in bounds(explanation.plan.estimate))
    for number, step in enumerate(_steps(explanation), 1):
        decided = [decision for decision in explanation.decisions if decision.step == step.id]
        sections = (_section(decision, explanation.plan) for decision in decided)
        yield section(heading(f"{number}. {step.title}"), *_words(step), *sections)
    if explanation.others:
        yield section(heading("Other remarks"), pairs((reason.card, policy_words(reason)) for reason in explanation.others))
    if explanation.advice:
        yield section(heading("Advice", "for people; these cards act on nothing"), pairs(map(_advice, explanation.advice)))
    if explanation.not_as_shipped:
        yield section(heading("Cards that are not as shipped"), bullets(explanation.not_as_shipped))


def _steps(explanation: Explanation) -> Iterator[ExplainedStep]:
    """Steps that decided something, and a last one for settings that no step names."""
    deciding = {decision.step for decision in explanation.decisions}
    known = {step.id for step in explanation.steps}
    return (step for step in (*explanation.steps, *([] if deciding <= known else [OTHERS])) if step.id in deciding)


def _words(step: ExplainedStep) -> Iterator[Text]:
    words = " ".join(part for part in (step.rule, step.because) if part)
    if words:
        yield Text(words, "dim")


def _section(decision: Decision, plan: Plan) -> Group:
    detail = "the trained model may differ" if decision.changes_convergence else ""
    return section(heading(f"{decision.setting} = {show_value(decision.value)}", detail), pairs(_decision(decision, plan)))


def _advice(advice: Advice) -> tuple[str, str]:
    texts = "; ".join((advice.intent, *advice.texts))
    return advice.card, f"{', '.join(advice.settings)}: {texts}"


@grouped
def why_not_report(plan: Plan, alternative: WhyNot) -> Iterator[RenderableType]:
    """Effect of one other value of a setting."""
    question = f"why not {alternative.setting} = {show_value(alternative.value)}?"
    verdict = alternative.obstacle.value[0].upper() + alternative.obstacle.value[1:]
    answer = "The plan has it." if alternative.plan == plan else f"{verdict}: {alternative.text}"
    yield from (_title(plan), Text(""), Text(question, "bold"), Text(answer))
    other = change_words(alternative.plan) if alternative.plan and alternative.obstacle not in HARD else ""
    if other not in ("", change_words(plan)):
        yield Text(f"That would be: {other}")


def _title(plan: Plan) -> Text:
    name = f"plan {plan.id}: {plan.model.name} on {plan.cluster.name}"
    return Text.assemble((name, "bold"), f"  {change_words(plan)}")


def _node_differences(plan: Plan) -> Iterator[Text]:
    """Consequences of heterogeneous nodes for the plan."""
    sentences = list(node_differences(plan.cluster))
    if layers := plan.estimate.pipeline_layers:
        reason = "by the speed of their devices" if plan.cluster.groups else "with embedding and head weighed"
        sentences.append(f"Its stages have {layer_words(layers)} layers, {reason}.")
    if sentences:
        yield Text(" ".join(sentences))


def _decision(decision: Decision, plan: Plan) -> Iterator[tuple[str, str]]:
    for reason in decision.reasons:
        yield reason.card, policy_words(reason)
    if not decision.reasons:
        yield _without_cards(decision, plan)
    for other in decision.why_not:
        yield (
            f"not {show_value(other.value)}",
            other.text if other.obstacle is not Obstacle.FASTER else f"{other.text}, as predicted",
        )


def _without_cards(decision: Decision, plan: Plan) -> tuple[str, str]:
    """What decided a setting that no card names. Of equally good plans it need not be the fastest."""
    if not decision.why_not:
        return "user", BY_HAND
    equal = (other.plan for other in decision.why_not if other.obstacle is Obstacle.EQUAL)
    fastest = min((other.estimate.step_seconds for other in equal if other), default=plan.estimate.step_seconds)
    return ("tie", BY_TIE) if fastest < (1 - EQUAL_MARGIN) * plan.estimate.step_seconds else ("cost", BY_COST)
