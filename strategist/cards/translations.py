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

Translatable = TypeVar("Translatable")


def in_language(value: Translatable, deck: Deck, language: str) -> Translatable:
    """The value, of any depth, with texts of the deck's cards and flows in ``language``; English where there is no translation.

    Any text of the deck is replaced where it is a whole string; reasons and risks also within a sentence.
    """
    translated: Translatable = _Translator(deck, language).translate(value)
    return translated


class _Translator:
    """Translations by English text of a deck."""

    def __init__(self, deck: Deck, language: str) -> None:
        self._language = language
        reasons = {text.en: text.show(language) for text in _reasons(deck) if text.en}
        phrases = {english.rstrip("."): translation.rstrip("。.") for english, translation in reasons.items()} | reasons
        self._phrases = sorted(phrases.items(), key=lambda pair: -len(pair[0]))  # longest first: a text may be a prefix
        self._texts = {text.en: text.show(language) for text in _titles(deck) if text.en} | reasons

    def translate(self, value: Any) -> Any:
        """The translated value; the same object where nothing in it changes."""
        if isinstance(value, Text):
            return Text(en=value.show(self._language))
        if type(value) is str:
            return self._texts.get(value) or self._with_phrases(value)
        if isinstance(value, Document):  # files are not translated
            return value
        if type(value) in (list, tuple):
            items = [self.translate(item) for item in value]
            return value if all(map(_is_same, items, value)) else type(value)(items)
        if type(value) is dict:
            items_by_key = {key: self.translate(item) for key, item in value.items()}
            return value if all(map(_is_same, items_by_key.values(), value.values())) else items_by_key
        if is_dataclass(value) and not isinstance(value, type):
            values = {item.name: getattr(value, item.name) for item in fields(value)}
            changes = {name: translated for name, item in values.items() if (translated := self.translate(item)) is not item}
            return replace(value, **changes) if changes else value
        return value

    def _with_phrases(self, text: str) -> str:
        if " " in text:  # skips names, which have no blank: a report has thousands of them
            for english, translation in self._phrases:
                if english in text:
                    text = text.replace(english, translation)
        return text


def _is_same(left: object, right: object) -> bool:
    return left is right


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
