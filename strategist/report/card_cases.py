"""Test cases of a card in words, with the numbers as written in the file."""

from collections.abc import Iterator, Mapping
from typing import Any

from strategist.cards.card import Card
from strategist.contract.knobs import show_value


def case_words(card: Card) -> Iterator[tuple[str, str, str]]:
    """Facts, candidate and expected result of each case."""
    for case in card.sections.get("cases") or ():
        given = case["given"] or {}
        yield _assignments(given.get("facts") or {}), _assignments(given.get("candidate") or {}), _expected(case["expect"])


def _assignments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {show_value(value)}" for name, value in values.items())


def _expected(expect: str | Mapping[str, Any]) -> str:
    if isinstance(expect, str):
        return expect
    parts = []
    if "reasons" in expect:
        parts.append(f"reasons: {', '.join(expect['reasons'])}" if expect["reasons"] else "no reasons")
    if "proposes" in expect:
        parts.append(f"proposes {_assignments(expect['proposes'])}" if expect["proposes"] else "proposes nothing")
    return "; ".join(parts)
