"""Cards and profiles as tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.cards.card import Card, Example, Policy, SourceRef
from strategist.cards.deck import Deck
from strategist.cards.flow import Flow, Step
from strategist.expr.check import Expression
from strategist.report.card_cases import case_words
from strategist.report.text_blocks import bullets, columns, grouped, heading, pairs, section
from strategist.rules.policy_evaluation import show_setting


@grouped
def deck_report(deck: Deck, not_as_shipped: Sequence[str] = ()) -> Iterator[RenderableType]:
    """A line per card and flow, and the origin of those that are not shipped."""
    yield cards_report(deck.cards)
    if deck.flows:
        yield section(heading("Flows"), pairs((flow.id, str(flow.title or flow.intent)) for flow in deck.flows))
    if not_as_shipped:
        yield section(heading("Not as shipped"), bullets(not_as_shipped))


def cards_report(cards: Sequence[Card]) -> Table:
    """A line per card; a card without effects is marked as advice."""
    rows = ((card.id, card.module, card.status.value if card.acts else "advice", str(card.title or card.intent)) for card in cards)
    return columns("id", "module", "status", "title", rows=rows, wrap=["title"], left=["id", "module", "status"])


def flow_report(flow: Flow) -> Group:
    """One flow in full."""
    return Group(
        Text.assemble((f"{flow.id} {flow.title}".strip(), "bold"), "  flow"),
        Text(str(flow.intent)),
        *(section(heading(f"{number}. {step.title or step.id}"), *_step(step)) for number, step in enumerate(flow.steps, 1)),
        Text(f"\n{flow.document.path}", "dim"),
    )


def _step(step: Step) -> Iterator[RenderableType]:
    yield Text(" ".join(filter(None, (str(step.rule), str(step.because)))))
    decides = ", ".join(path.partition(".")[2] for path in step.decides)
    rows = {"decides": decides, "when": step.when.text if step.when else "", "asks": ", ".join(step.cards)}
    yield pairs((name, text) for name, text in rows.items() if text)


@grouped
def card_report(card: Card) -> Iterator[RenderableType]:
    """One card in full."""
    state = card.status.value if card.acts else "advice: words for people, it acts on nothing"
    yield Text.assemble((f"{card.id} {card.title}".strip(), "bold"), f"  {card.module}, {state}")
    yield Text(str(card.intent))
    if card.preconditions:
        yield section(heading("Preconditions"), bullets(_with_condition(item.when, str(item.text)) for item in card.preconditions))
    if card.control_points:
        points = ((point.path or point.name, str(point.effect)) for point in card.control_points)
        yield section(heading("Settings"), pairs(points))
    if card.policies:
        yield section(heading("Policies"), bullets(f"{policy.id}: {_policy(policy)}" for policy in card.policies))
    if card.risks:
        yield section(heading("Risks"), bullets(_with_condition(risk.when, str(risk.text)) for risk in card.risks))
    if card.evidence:
        yield section(heading("Evidence"), bullets(f"{claim.text} ({claim.source})" for claim in card.evidence))
    if card.source_refs:
        yield section(heading("Sources"), bullets(_source(ref) for ref in card.source_refs))
    for example in card.example:
        yield section(heading("Example", _example_kind(example)), Text(example.run.rstrip() or str(example.text)))
    if card.cases:
        yield section(heading("Cases"), bullets(map(_case, case_words(card)), mark="1"))
    yield Text(f"\n{card.document.path}", "dim")


def _with_condition(condition: Expression | None, text: str) -> str:
    if condition is None:
        return text
    return f"{text} (when {condition.text})" if text else f"when {condition.text}"


def _policy(policy: Policy) -> str:
    if not policy.effects:
        return f"advice: {policy.because}"
    effects = "; ".join(
        f"{effect.kind.value} {', '.join(map(show_setting, effect.settings)) or 'the candidate'}" for effect in policy.effects
    )
    when = f" when {policy.when.text}" if policy.when else ""
    return f"{policy.phase.value}: {effects}{when}. {policy.because}"


def _source(ref: SourceRef) -> str:
    symbol = f"{ref.symbol}({ref.parameter}=)" if ref.parameter else ref.symbol
    return ", ".join(part for part in (symbol, ref.url, str(ref.note)) if part)


def _example_kind(example: Example) -> str:
    if not example.run:
        return "for people"
    refused = f", refused there: {example.refused}" if example.refused else ""
    return ("one process" if example.ranks == 1 else f"{example.ranks} processes") + " on CPU" + refused


def _case(words: tuple[str, str, str]) -> str:
    facts, candidate, expected = words
    return f"{', '.join(filter(None, (candidate, facts))) or 'nothing given'}: {expected}"


def profiles_report(known: Mapping[str, Iterable[str]]) -> Group:
    """Names of profiles by kind."""
    return Group(*(section(heading(kind), Text(", ".join(names))) for kind, names in known.items()))
