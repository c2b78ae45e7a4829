"""A page for each decision flow."""

from collections.abc import Iterator

from strategist.cards.deck import Deck
from strategist.cards.flow import Flow, Step
from strategist.report.reference.links import card_link, file_name, name_link
from strategist.report.reference.markdown import both_languages, bullets, code, page, prose


def flow_pages(deck: Deck) -> Iterator[tuple[str, str]]:
    """A page per flow, with its path."""
    known = frozenset(card.id for card in deck.cards)
    for flow in deck.flows:
        yield f"flows/{file_name(flow.id)}", page(*_flow(flow, known))


def _flow(flow: Flow, known: frozenset[str]) -> Iterator[str]:
    yield f"# {flow.id}" + (f": {both_languages(flow.title)}" if flow.title else "")
    yield prose(flow.intent.en)
    yield prose(flow.intent.zh)
    yield "Explanations list a plan's settings in this order, then the settings that no step names."
    for number, step in enumerate(flow.steps, 1):
        yield f"## {number}. {both_languages(step.title) or step.id}"
        yield " ".join(filter(None, (prose(step.rule), prose(step.because))))
        yield bullets(_step(step, known))


def _step(step: Step, known: frozenset[str]) -> Iterator[str]:
    yield f"decides {', '.join(map(name_link, step.decides))}"
    if step.when:
        yield f"skipped unless {code(step.when.text)}"
    if step.cards:
        yield f"asks {', '.join(card_link(card, known) for card in step.cards)}"
