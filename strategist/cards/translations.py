"""Translations of cards: English texts of cards and flows are replaced in values for display.

Plans are made and stored in English, so that equal requests give equal plans with equal ids in every language. Only displayed texts
of cards and flows are translated.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from strategist.cards.card import Text
from strategist.cards.deck import Deck
from strategist.files.yaml_file import Document

Shown = TypeVar("Shown")


def in_language(value: Shown, deck: Deck, language: str) -> Shown:
    """The value, of any depth, with texts of the deck's cards and flows in ``language``; English where there is no translation.

    Any text of the deck is replaced where it is a whole string; reasons and risks also within a sentence.
    """
    said: Shown = _Words(deck, language).say(value)
    return said


class _Words:
    """Translations by English text of a deck."""

    def __init__(self, deck: Deck, language: str) -> None:
        self._language = language
        reasons = {text.en: text.show(language) for text in _reasons(deck) if text.en}
        within = {english.rstrip("."): said.rstrip("。.") for english, said in reasons.items()} | reasons
        self._inside = sorted(within.items(), key=lambda pair: -len(pair[0]))  # longest first: a text may be a prefix
        self._whole = {text.en: text.show(language) for text in _titles(deck) if text.en} | reasons

    def say(self, value: Any) -> Any:
        """The translated value; the same object where nothing in it changes."""
        if isinstance(value, Text):
            return Text(en=value.show(self._language))
        if type(value) is str:
            return self._whole.get(value) or self._sentence(value)
        if isinstance(value, Document):  # files are not translated
            return value
        if type(value) in (list, tuple):
            items = [self.say(item) for item in value]
            return value if all(map(_same, items, value)) else type(value)(items)
        if type(value) is dict:
            said = {key: self.say(item) for key, item in value.items()}
            return value if all(map(_same, said.values(), value.values())) else said
        if is_dataclass(value) and not isinstance(value, type):
            before = {item.name: getattr(value, item.name) for item in fields(value)}
            after = {name: other for name, item in before.items() if (other := self.say(item)) is not item}
            return replace(value, **after) if after else value
        return value

    def _sentence(self, text: str) -> str:
        if " " in text:  # skips names, which have no blank: a report has thousands of them
            for english, said in self._inside:
                if english in text:
                    text = text.replace(english, said)
        return text


def _same(one: object, other: object) -> bool:
    return one is other


def _reasons(deck: Deck) -> Iterator[Text]:
    for card in deck.cards:
        yield from (policy.because for policy in card.policies)
        yield from (risk.text for risk in card.risks)


def _titles(deck: Deck) -> Iterator[Text]:
    """Texts that are always displayed as a whole."""
    for card in deck.cards:
        yield from (card.title, card.intent)
        yield from (item.text for item in card.preconditions)
        yield from (point.effect for point in card.control_points)
    for flow in deck.flows:
        yield from (flow.title, flow.intent)
        for step in flow.steps:
            yield from (step.title, step.rule, step.because)
