"""Translations of cards: replace the English texts in the values that are about to be shown.

Plans are decided, named and kept in English, so that equal requests give equal plans with equal ids whatever language they are read
in. Only what is shown changes, and of that only the words of cards and flows.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from strategist.cards.card import Text
from strategist.cards.deck import Deck
from strategist.files.yaml_file import Document

Shown = TypeVar("Shown")


def in_language(value: Shown, deck: Deck, language: str) -> Shown:
    """The value, of any depth, with what the deck's cards and flows say in ``language``; what they say in no other stays English.

    Any text of theirs is found where it stands alone; reasons and risks also inside a sentence of ours.
    """
    said: Shown = _Words(deck, language).say(value)
    return said


class _Words:
    """What each English text of a deck is in the language."""

    def __init__(self, deck: Deck, language: str) -> None:
        self._language = language
        reasons = {text.en: text.show(language) for text in _reasons(deck) if text.en}
        self._inside = sorted(reasons.items(), key=lambda pair: -len(pair[0]))  # one may be the beginning of a longer one
        self._whole = {text.en: text.show(language) for text in _titles(deck) if text.en} | reasons

    def say(self, value: Any) -> Any:
        """The value itself where nothing in it changes."""
        if isinstance(value, Text):
            return Text(en=value.show(self._language))
        if type(value) is str:
            return self._whole.get(value) or self._sentence(value)
        if isinstance(value, Document):  # a file stays what it is
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
        if " " in text:  # what has none is a name, of which a report has thousands
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
    """The texts that are always shown by themselves."""
    for card in deck.cards:
        yield from (card.title, card.intent)
        yield from (item.text for item in card.preconditions)
        yield from (point.effect for point in card.control_points)
    for flow in deck.flows:
        yield from (flow.title, flow.intent)
        for step in flow.steps:
            yield from (step.title, step.rule, step.because)
