"""Deck: the cards that a plan is decided with, and their identity."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from strategist.cards.card import Card
from strategist.cards.reader import read_card
from strategist.errors import FileError, InputError
from strategist.yamlfile import load


@dataclass(frozen=True)
class Deck:
    """Cards sorted by id, each id once."""

    cards: tuple[Card, ...]

    @cached_property
    def digest(self) -> str:
        """Of what the cards say, not of how their files are laid out: SHA-256, hexadecimal, first 16 digits."""
        content = [[card.id, card.document.data] for card in self.cards]
        text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def card(self, card_id: str) -> Card:
        """The card of that id.

        Raises:
            InputError: there is none.
        """
        for card in self.cards:
            if card.id == card_id:
                return card
        raise InputError(f"card {card_id}", "is not in the deck", f"known are {', '.join(card.id for card in self.cards)}")

    def without(self, card_id: str) -> "Deck":
        """The deck less one card.

        Raises:
            InputError: there is no such card.
        """
        gone = self.card(card_id)
        return replace(self, cards=tuple(card for card in self.cards if card is not gone))


def load_deck(*folders: str | Path) -> Deck:
    """All cards in the folders and below; a card of a later folder replaces the one of equal id in an earlier folder.

    Raises:
        FileError: a folder or file cannot be read, a file is no card, or one folder has an id twice.
    """
    cards: dict[str, Card] = {}
    for folder in folders:
        cards |= _read_folder(Path(folder))
    return Deck(tuple(cards[card_id] for card_id in sorted(cards)))


def card_files(folder: Path) -> Sequence[Path]:
    """The card files in a folder and below, in a fixed order.

    Raises:
        FileError: it is no folder.
    """
    if not folder.is_dir():
        raise FileError(folder, "is no folder of cards")
    return sorted(path for path in folder.rglob("*.yaml") if path.is_file())


def _read_folder(folder: Path) -> dict[str, Card]:
    cards: dict[str, Card] = {}
    for path in card_files(folder):
        card = read_card(load(path))
        if card.id in cards:
            raise FileError(path, f"id {card.id} is taken by {cards[card.id].document.path}")
        cards[card.id] = card
    return cards
