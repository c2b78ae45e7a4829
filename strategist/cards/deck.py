"""Deck: the cards that a plan is decided with, the flows that order its explanation, and their identity."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from strategist.cards.card import Card, Effect, EffectKind, Phase, Policy, canonical
from strategist.cards.flow import FLOW_ROOT, Flow, is_flow
from strategist.cards.serialization import restored, stored
from strategist.errors import FileError, InputError
from strategist.files import cache
from strategist.files.yaml_file import Document, parse, read_text
from strategist.paths import data_dir

SUFFIXES = (".yaml", ".yml")

FILES_KEPT = 512
"""So many files that were read last are not parsed again while their text stays: a server reads its deck at every call."""

CODE = ("cards", "contract", "errors", "expr", "files", "units")
"""The parts of this package that decide what a file is read as."""


class PolicyRef(NamedTuple):
    """Reference to one effect of one policy on a setting."""

    card: Card
    policy: Policy
    effect: Effect


Placed = tuple[tuple[int, int], Policy, Effect]
"""An effect with its place: the number of its card among those that act, and its own number there."""


@dataclass(frozen=True)
class Deck:
    """Cards sorted by id, each id once; flows in the order of reading; and by id the file whose card or flow was replaced."""

    cards: tuple[Card, ...]
    flows: tuple[Flow, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """Of what the cards say, not of how their files are laid out: SHA-256, hexadecimal, first 16 digits.

        This is the deck's part of a plan's identity. Flows are not in it: they order what is said of a plan and decide nothing of
        it, and equal decisions have equal ids. What an explanation stands on is ``explanation_digest``.
        """
        return _digest(f"[{','.join(f'[{canonical(card.id)},{card.canonical}]' for card in self.cards)}]")

    @cached_property
    def explanation_digest(self) -> str:
        """Of cards and flows: equal digests explain the same plan in the same words and order."""
        return _digest(canonical([self.digest, [[flow.id, flow.document.data[FLOW_ROOT]] for flow in self.flows]]))

    @property
    def flow(self) -> Flow | None:
        """The flow that orders explanations: the one read last, so that a user's own comes before the shipped one."""
        return self.flows[-1] if self.flows else None

    @cached_property
    def policy_refs(self) -> Mapping[str, tuple[PolicyRef, ...]]:
        """By full name of a setting, the effects on it; those on whole candidates by what their condition speaks of."""
        found: dict[str, list[PolicyRef]] = {}
        for card in self.cards:
            for policy in card.policies:
                for effect in policy.effects:
                    named = {setting.path for setting in effect.settings}
                    for path in named or (policy.when.names if policy.when else ()):
                        found.setdefault(path, []).append(PolicyRef(card, policy, effect))
        return {path: tuple(policy_refs) for path, policy_refs in found.items()}

    @cached_property
    def acting(self) -> tuple[tuple[Card, tuple[tuple[Policy, Effect], ...]], ...]:
        """The cards that act on a plan, each with the effects of its policies in their order."""
        planned = ((card, [policy for policy in card.policies if policy.phase is Phase.PLAN]) for card in self.cards)
        effects = ((card, tuple((policy, effect) for policy in some for effect in policy.effects)) for card, some in planned)
        return tuple((card, found) for card, found in effects if found)

    @cached_property
    def _acting_on(self) -> dict[tuple[object, ...], tuple[tuple[Card, tuple[Placed, ...]], ...]]:
        return {}

    def acting_on(
        self, names: frozenset[str], kinds: tuple[EffectKind, ...], free: frozenset[str] = frozenset()
    ) -> tuple[tuple[Card, tuple[Placed, ...]], ...]:
        """The cards with effects of these kinds all of whose settings, less those that are ``free``, are among the ``names`` and
        are not computed for each candidate. Remembered: many tables have the same names."""
        key = names, kinds, free
        if key not in self._acting_on:
            found = []
            for place, (card, effects) in enumerate(self.acting):
                own = [((place, at), policy, effect) for at, (policy, effect) in enumerate(effects) if effect.kind in kinds]
                less = ((number, policy, effect.without(free)) for number, policy, effect in own)
                found.append((card, tuple(each for each in less if each[2].speaks_of(names))))
            self._acting_on[key] = tuple((card, placed) for card, placed in found if placed)
        return self._acting_on[key]

    def card(self, card_id: str) -> Card:
        """The card of that id.

        Raises:
            InputError: there is none.
        """
        for card in self.cards:
            if card.id == card_id:
                return card
        known = [card.id for card in self.cards]
        near = get_close_matches(card_id.upper(), known, n=2, cutoff=0.8)
        do = f"did you mean {' or '.join(near)}? " if near else ""
        raise InputError(f"card {card_id}", "is not in the deck", f"{do}strategist cards list names all {len(known)}")

    def without(self, card_id: str) -> "Deck":
        """The deck less one card.

        Raises:
            InputError: there is no such card.
        """
        gone = self.card(card_id)
        return replace(self, cards=tuple(card for card in self.cards if card is not gone))


def load_deck(*folders: str | Path) -> Deck:
    """All cards and flows in the folders and below; one of a later folder replaces that of equal id in an earlier folder.

    Raises:
        FileError: a folder or file cannot be read, a file is neither card nor flow, or one folder has an id twice.
    """
    found: dict[str, Card | Flow] = {}
    replaced: dict[str, str] = {}
    for folder in folders:
        for key, item in _read_folder(Path(folder)).items():
            if before := found.pop(key, None):  # popped, so that a flow counts as read where it is replaced
                replaced[key] = before.document.path
            found[key] = item
    cards = sorted((item for item in found.values() if isinstance(item, Card)), key=lambda card: card.id)
    return Deck(tuple(cards), tuple(item for item in found.values() if isinstance(item, Flow)), replaced)


def card_files(folder: Path) -> Sequence[Path]:
    """The files of cards and flows in a folder and below, in a fixed order.

    Raises:
        FileError: it is no folder, or holds none.
    """
    if not folder.is_dir():
        raise FileError(folder, "is no folder of cards; name one, or an installed deck")
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise FileError(folder, f"holds no card, a file that ends in {' or '.join(SUFFIXES)}; strategist cards new makes one")
    return files


def _read_folder(folder: Path) -> dict[str, Card | Flow]:
    texts = tuple((path, read_text(path)) for path in card_files(folder))
    items = _shipped(folder, texts) if folder == data_dir("cards") else (_read(path, text) for path, text in texts)
    found: dict[str, Card | Flow] = {}
    for item, (path, _) in zip(items, texts, strict=True):
        if item.id in found:
            raise FileError(path, f"id {item.id} is taken by {found[item.id].document.path}; give it another")
        found[item.id] = item
    return found


@lru_cache(maxsize=FILES_KEPT)
def _read(path: Path, text: str) -> Card | Flow:
    from strategist.cards.flow_reader import read_flow  # a deck that is kept needs no reader
    from strategist.cards.reader import read_card

    document = parse(text, path)
    return read_flow(document) if is_flow(document) else read_card(document)


@lru_cache(maxsize=1)
def _shipped(folder: Path, texts: tuple[tuple[Path, str], ...]) -> tuple[Card | Flow, ...]:
    """The shipped cards and flows, read in an earlier run where it was the same code and the same files."""

    def read() -> list[list[Any]]:
        items = [_read(path, text) for path, text in texts]
        return [[stored(item), item.canonical if isinstance(item, Card) else ""] for item in items]

    names = (path.relative_to(folder).as_posix() for path, _ in texts)
    key = cache.key_of(cache.version(*CODE), *names, *(text for _, text in texts))
    pairs = zip(cache.kept("cards", key, read), texts, strict=True)
    return tuple(restored(data, said, Document(str(path), text)) for (data, said), (path, text) in pairs)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
