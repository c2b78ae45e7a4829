"""A page for each card, and the index of all cards by module."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import PurePath

from strategist.cards.card import Card, Condition, ControlPoint, Effect, EffectKind, Example, Phase, Policy, Risk, SourceRef
from strategist.cards.deck import Deck
from strategist.contract.knobs import show_value
from strategist.expr.vocabulary import VOCABULARY
from strategist.report.card_cases import case_words
from strategist.report.reference.links import card_link, file_name, name_link
from strategist.report.reference.markdown import both_languages, bullets, code, codes, fence, page, prose, table
from strategist.rules.policy_evaluation import show_setting


def card_pages(deck: Deck) -> Iterator[tuple[str, str]]:
    """The index, then a page per card, each with its path."""
    yield "cards/README.md", _index(deck)
    for card in deck.cards:
        yield f"cards/{file_name(card.id)}", page(*_card(card, deck))


def _index(deck: Deck) -> str:
    blocks = ["# Cards by module", f"{len(deck.cards)} cards. How to write one: `strategist cards new`."]
    for module, cards in groupby(sorted(deck.cards, key=lambda card: (card.module, card.id)), key=lambda card: card.module):
        rows = ([f"[{card.id}]({file_name(card.id)})", _state(card), both_languages(card.title or card.intent)] for card in cards)
        blocks += [f"## {module}", table(("card", "status", "title"), rows)]
    return page(*blocks)


def _state(card: Card) -> str:
    return card.status.value if card.acts else "advice"


def _card(card: Card, deck: Deck) -> Iterator[str]:
    known = frozenset(item.id for item in deck.cards)
    yield f"# {card.id}" + (f": {both_languages(card.title)}" if card.title else "")
    yield prose(card.intent.en) if card.intent.en else ""
    yield prose(card.intent.zh) if card.intent.zh else ""
    yield table(("module", "status", "since", "validated on", "file"), [_facts(card)])
    yield from _section("Preconditions", bullets(map(_condition, card.preconditions)))
    points = (_point(point) for point in card.control_points)
    if card.control_points:
        yield from _section("Control points", table(("setting", "values", "changes", "effect"), points))
    yield from _section("Observables", bullets(_observable(item.name, item.metric) for item in card.observables))
    yield from _section("Policies", *(block for policy in card.policies for block in _policy(policy)))
    yield from _section("Risks", *(block for risk in card.risks for block in _risk(risk)))
    yield from _section("Interactions", bullets(_interactions(card, deck, known)))
    claims = (f"{prose(claim.text)} {_source_of(claim.source)}".rstrip() for claim in card.evidence)
    yield from _section("Evidence", bullets(claims))
    yield from _section("Sources", bullets(_source(ref) for ref in card.source_refs))
    yield from _section("Example", *(block for example in card.example for block in _example(example)))
    if card.cases:
        rows = ([str(number), *map(_cell, words)] for number, words in enumerate(case_words(card), 1))
        yield from _section("Cases", table(("", "facts", "candidate", "expected"), rows))


def _facts(card: Card) -> tuple[str, ...]:
    file = PurePath(card.document.path)
    validated = prose("; ".join(card.validated_on)) or "-"
    return card.module, _state(card), card.since or "-", validated, code(f"{file.parent.name}/{file.name}")


def _section(title: str, *blocks: str) -> Iterator[str]:
    if any(blocks):
        yield f"## {title}"
        yield from blocks


def _condition(item: Condition) -> str:
    if item.when is None:
        return prose(item.text)
    return ": ".join(filter(None, (prose(item.text).removesuffix("."), code(item.when.text))))


def _point(point: ControlPoint) -> tuple[str, ...]:
    name = name_link(point.path) if point.path else prose(point.name)
    return name, codes(map(show_value, point.values)) or "any", point.changes, prose(point.effect)


def _observable(name: str, metric: str) -> str:
    return f"{code(name)}: {name_link(metric)}, {VOCABULARY[metric].doc}" if metric in VOCABULARY else prose(name)


def _policy(policy: Policy) -> Iterator[str]:
    if not policy.effects:
        yield f"### {policy.id}"
        yield f"Advice: {prose(policy.because)}"
        return
    yield f"### {policy.id}"
    occasion = "After a trial" if policy.phase is Phase.OBSERVE else "Before a run"
    yield bullets(
        [
            f"{occasion}, when {code(policy.when.text)}" if policy.when else f"{occasion}, always",
            *(_effect(effect) for effect in policy.effects),
            f"because: {prose(policy.because)}",
        ]
    )


def _effect(effect: Effect) -> str:
    effect_words = f"**{effect.kind.value}**"
    if effect.kind is EffectKind.WARN:
        return effect_words
    return f"{effect_words} {codes(map(show_setting, effect.settings)) or 'the candidate'}"


def _risk(risk: Risk) -> Iterator[str]:
    yield f"### {risk.id}"
    fallback = [f"fall back to {codes(map(show_setting, risk.fallback))}"] if risk.fallback else []
    yield bullets([*([f"while {code(risk.when.text)}"] if risk.when else []), prose(risk.text), *fallback])


def _interactions(card: Card, deck: Deck, known: frozenset[str]) -> Iterator[str]:
    """Interactions that the card names, cards that name it, and steps of flows that use it."""
    for item in card.interactions:
        yield f"{card_link(item.card, known)}: {prose(item.text)}"
    for other in deck.cards:
        for item in other.interactions:
            if item.card == card.id:
                yield f"{card_link(other.id, known)} names this card: {prose(item.text)}"
    for flow in deck.flows:
        steps = [prose(step.title or step.id) for step in flow.steps if card.id in step.cards]
        if steps:
            yield f"asked by [{flow.id}](../flows/{file_name(flow.id)}): {', '.join(steps)}"


def _source_of(source: str) -> str:
    return f"<{source}>" if source.startswith("http") else f"({prose(source)})" if source else ""


def _source(ref: SourceRef) -> str:
    symbol = code(f"{ref.symbol}({ref.parameter}=)" if ref.parameter else ref.symbol) if ref.symbol else ""
    lines = f"lines {'-'.join(map(str, ref.lines))}" if ref.lines else ""
    return ", ".join(filter(None, (symbol, lines, f"<{ref.url}>" if ref.url else "", prose(ref.note))))


def _example(example: Example) -> Iterator[str]:
    if not example.run:
        yield prose(example.text)
        return
    ranks = f"{example.ranks} processes on CPU" if example.ranks > 1 else "one process on CPU"
    yield f"Runs in {ranks}" + (f", and is refused there: {code(example.refused)}" if example.refused else "") + "."
    yield fence(example.run, "python")


def _cell(words: str) -> str:
    return prose(words) if words in ("forbidden", "allowed", "no reasons") else code(words) if words else "-"
