"""Deck: the cards that decide plans, the flows that order explanations, and their digests."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from strategist.cards.card import Card, Effect, EffectKind, Phase, Policy, canonical
from strategist.cards.flow import FLOW_ROOT, Flow, is_flow
from strategist.cards.serialization import deserialized, serialized
from strategist.errors import FileError, InputError, did_you_mean
from strategist.files import cache
from strategist.files.yaml_file import Document, parse, read_text
from strategist.paths import data_dir

SUFFIXES = (".yaml", ".yml")

CACHED_FILES = 512
"""Number of recently read files that are kept parsed in memory until their text changes: a server reads its deck at every call."""

PARSER_CODE = ("cards", "contract", "errors", "expr", "files", "frozen", "units")
"""Parts of this package whose code determines the parsed cards; part of the cache key."""


class PolicyRef(NamedTuple):
    """Reference to one effect of one policy on a setting."""

    card: Card
    policy: Policy
    effect: Effect


PositionedEffect = tuple[tuple[int, int], Policy, Effect]
"""An effect with its place: the number of its card among those that act, and its own number there."""


@dataclass(frozen=True)
class Deck:
    """Cards sorted by unique id, and flows in reading order.

    ``replaced``: by id, the file of the card or flow that one of a later folder replaced.
    """

    cards: tuple[Card, ...]
    flows: tuple[Flow, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """Digest of the cards' content, independent of file layout: first 16 hexadecimal digits of its SHA-256.

        It is part of a plan's identity. Flows are not included, because they only order explanations, and equal decisions must have
        equal ids; see ``explanation_digest``.
        """
        return _digest(f"[{','.join(f'[{canonical(card.id)},{card.canonical}]' for card in self.cards)}]")

    @cached_property
    def explanation_digest(self) -> str:
        """Digest of cards and flows: decks with equal digests explain a plan with the same words in the same order."""
        return _digest(canonical([self.digest, [[flow.id, flow.document.data[FLOW_ROOT]] for flow in self.flows]]))

    @property
    def flow(self) -> Flow | None:
        """The flow that orders explanations: the last one read, so that a user's flow replaces the shipped one.

        None where there is none.
        """
        return self.flows[-1] if self.flows else None

    @cached_property
    def policy_refs(self) -> Mapping[str, tuple[PolicyRef, ...]]:
        """All effects on each setting, by its full name.

        Effects on whole candidates are listed under every name in the policy's condition.
        """
        found: dict[str, list[PolicyRef]] = {}
        for card in self.cards:
            for policy in card.policies:
                for effect in policy.effects:
                    paths = {setting.path for setting in effect.settings}
                    for path in paths or (policy.when.names if policy.when else ()):
                        found.setdefault(path, []).append(PolicyRef(card, policy, effect))
        return {path: tuple(policy_refs) for path, policy_refs in found.items()}

    @cached_property
    def acting_cards(self) -> tuple[tuple[Card, tuple[tuple[Policy, Effect], ...]], ...]:
        """Cards with effects in the plan phase, each with these effects in order."""
        plan_policies = ((card, [policy for policy in card.policies if policy.phase is Phase.PLAN]) for card in self.cards)
        effects = (
            (card, tuple((policy, effect) for policy in policies for effect in policy.effects)) for card, policies in plan_policies
        )
        return tuple((card, pairs) for card, pairs in effects if pairs)

    @cached_property
    def _effects_by_names(self) -> dict[tuple[object, ...], tuple[tuple[Card, tuple[PositionedEffect, ...]], ...]]:
        return {}

    def cards_setting_only(
        self,
        names: frozenset[str],
        kinds: tuple[EffectKind, ...],
        free: frozenset[str] = frozenset(),
        decided: tuple[frozenset[str], ...] = (),
    ) -> tuple[tuple[Card, tuple[PositionedEffect, ...]], ...]:
        """The effects that can be evaluated on a table with columns ``names``, by card; cached, since columns repeat.

        Args:
            kinds: kinds of the effects.
            free: settings that are removed from the effects.
            decided: columns of tables that were evaluated before: effects that depend on no other columns are left out.
        """
        key = names, kinds, free, decided
        if key not in self._effects_by_names:
            found = []
            for card_index, (card, effects) in enumerate(self.acting_cards):
                acting = tuple(
                    ((card_index, effect_index), policy, reduced)
                    for effect_index, (policy, effect) in enumerate(effects)
                    if effect.kind in kinds
                    and (reduced := effect.without(free)).sets_only(names)
                    and not _is_among(card, policy, reduced, names, decided)
                )
                if acting:
                    found.append((card, acting))
            self._effects_by_names[key] = tuple(found)
        return self._effects_by_names[key]

    def card(self, card_id: str) -> Card:
        """The card with this id.

        Raises:
            InputError: there is none.
        """
        for card in self.cards:
            if card.id == card_id:
                return card
        known = [card.id for card in self.cards]
        hint = did_you_mean(card_id, known, count=2, cutoff=0.8)
        raise InputError(f"card {card_id}", "is not in the deck", f"{hint} strategist cards list names all {len(known)}".lstrip())

    def without(self, card_id: str) -> "Deck":
        """A deck without one card.

        Raises:
            InputError: there is no such card.
        """
        removed = self.card(card_id)
        return replace(self, cards=tuple(card for card in self.cards if card is not removed))


def load_deck(*folders: str | Path) -> Deck:
    """Deck of all cards and flows in the folders and their subfolders.

    An item of a later folder replaces the item with the same id of an earlier one.

    Raises:
        FileError: a folder or file cannot be read, a file is neither card nor flow, or an id appears twice in one folder.
    """
    found: dict[str, Card | Flow] = {}
    replaced: dict[str, str] = {}
    for folder in folders:
        for key, item in _read_folder(Path(folder)).items():
            if previous := found.pop(key, None):  # removed first, so that a replacing flow comes last in reading order
                replaced[key] = previous.document.path
            found[key] = item
    cards = sorted((item for item in found.values() if isinstance(item, Card)), key=lambda card: card.id)
    return Deck(tuple(cards), tuple(item for item in found.values() if isinstance(item, Flow)), replaced)


def card_files(folder: Path) -> Sequence[Path]:
    """Card and flow files in a folder and its subfolders, in a fixed order.

    Raises:
        FileError: it is not a folder, or has no such file.
    """
    if not folder.is_dir():
        raise FileError(folder, "is not a folder of cards; name one, or an installed deck")
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise FileError(folder, f"holds no card, a file that ends in {' or '.join(SUFFIXES)}; strategist cards new makes one")
    return files


def _read_folder(folder: Path) -> dict[str, Card | Flow]:
    texts = tuple((path, read_text(path)) for path in card_files(folder))
    items = _shipped_items(folder, texts) if folder == data_dir("cards") else (_read(path, text) for path, text in texts)
    found: dict[str, Card | Flow] = {}
    for item, (path, _) in zip(items, texts, strict=True):
        if item.id in found:
            raise FileError(path, f"id {item.id} is taken by {found[item.id].document.path}; give it another")
        found[item.id] = item
    return found


@lru_cache(maxsize=CACHED_FILES)
def _read(path: Path, text: str) -> Card | Flow:
    from strategist.cards.flow_reader import read_flow  # not imported where the deck comes from the cache
    from strategist.cards.reader import read_card

    document = parse(text, path)
    return read_flow(document) if is_flow(document) else read_card(document)


@lru_cache(maxsize=1)
def _shipped_items(folder: Path, texts: tuple[tuple[Path, str], ...]) -> tuple[Card | Flow, ...]:
    """The shipped cards and flows, from the cache if code and files are unchanged."""

    def read() -> list[list[Any]]:
        items = [_read(path, text) for path, text in texts]
        return [[serialized(item), item.canonical if isinstance(item, Card) else ""] for item in items]

    names = (path.relative_to(folder).as_posix() for path, _ in texts)
    key = cache.key_of(cache.version(*PARSER_CODE), *names, *(text for _, text in texts))
    pairs = zip(cache.cached("cards", key, read), texts, strict=True)
    return tuple(deserialized(data, canonical_text, Document(str(path), text)) for (data, canonical_text), (path, text) in pairs)


def _is_among(card: Card, policy: Policy, effect: Effect, names: frozenset[str], decided: Sequence[frozenset[str]]) -> bool:
    """Whether one of the sets ``decided`` has all of the ``names`` on which an effect of a card depends."""
    conditions = (*(condition.when for condition in card.preconditions), policy.when)
    used = names & {setting.path for setting in effect.settings}.union(*(condition.names for condition in conditions if condition))
    return any(used <= table for table in decided)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
