"""Contradictions: one policy requires what another forbids; with a witness for which both act and no value is left."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strategist.cards.card import LAWS, Card, Effect, EffectKind, Phase, Policy
from strategist.cards.deck import Deck
from strategist.contract.knobs import KnobValue, show_value
from strategist.expr.check import Expression
from strategist.expr.vocabulary import BOOL, SETTINGS, VOCABULARY, same_choice
from strategist.frozen import frozen
from strategist.lint.regions import selected
from strategist.lint.satisfiability import Regions, decided_regions, holds, intersection
from strategist.lint.witness import MAX_REGIONS, complete_facts, situations
from strategist.rules.policy_matching import condition_holds, preconditions_hold, selects_row
from strategist.units import show_bytes

SAMPLE_NUMBERS = (1, 2, 3, 4, 8, 16, 32)
NARROWING_EFFECTS = (*LAWS, EffectKind.SET)
"""Effects that drop candidates. A default gives way only if no candidate at all would be left."""


@dataclass(frozen=True)
class Law:
    """A law or default of a policy, for settings that it names."""

    card: Card
    policy: Policy
    effect: Effect

    def __str__(self) -> str:
        return f"{self.card.id}/{self.policy.id}"

    def values(self, path: str) -> tuple[KnobValue, ...]:
        """The values that it names for a setting."""
        return next((setting.values for setting in self.effect.settings if setting.path == path), ())

    @property
    def forbids(self) -> bool:
        return self.effect.kind is EffectKind.FORBID

    @property
    def conditions(self) -> list[Expression]:
        """Conditions of its card and its policy."""
        conditions = [*(condition.when for condition in self.card.preconditions), self.policy.when]
        return [when for when in conditions if when is not None]

    @property
    def names(self) -> frozenset[str]:
        """All names that its action depends on."""
        condition_names = frozenset(name for when in self.conditions for name in when.names)
        return condition_names | {setting.path for setting in self.effect.settings}

    def drops(self, row: Mapping[str, Any]) -> bool:
        """Whether it acts on a candidate and drops it, by evaluation of the row."""
        acts = preconditions_hold(self.card, row) and condition_holds(self.policy, row)
        return acts and selects_row(self.effect, row) is self.forbids


@frozen
class Contradiction:
    """Two laws that leave no value of the setting ``path``, and a witness: values of the names that they depend on."""

    first: Law
    second: Law
    path: str
    witness: Mapping[str, Any]

    def __str__(self) -> str:
        demands = " and ".join(f"{law} {_demand_text(law, self.path)}" for law in (self.first, self.second))
        facts = ", ".join(f"{name} = {_value_text(name, value)}" for name, value in sorted(self.witness.items()))
        return f"{demands}; both act where {facts}" if facts else f"{demands}, always"


def laws(deck: Deck) -> tuple[Law, ...]:
    """The laws and defaults of a deck that name settings with fixed values."""
    return tuple(
        Law(card, policy, effect)
        for card in deck.cards
        for policy in card.policies
        for effect in policy.effects
        if policy.phase is Phase.PLAN
        and effect.kind in NARROWING_EFFECTS
        and effect.settings
        and all(s.change is None for s in effect.settings)
    )


def contradictions(card: Card, deck: Deck) -> Iterator[Contradiction]:
    """Contradictions of a card with itself and with the cards before it, by id; at most one for each pair of laws."""
    all_ = laws(deck)
    for position, second in enumerate(all_):
        if second.card is card:
            for first in all_[:position]:
                found = next(
                    (found for path in _contradicted_paths(first, second) if (found := _search(first, second, path))), None
                )
                if found is not None:
                    yield found


def _contradicted_paths(first: Law, second: Law) -> Iterator[str]:
    """Settings of which the two laws together leave no value if both act."""
    for setting in first.effect.settings:
        path = setting.path
        values = _candidate_values(first, second, path)
        if second.values(path) and not any(_allows(first, path, value) and _allows(second, path, value) for value in values):
            yield path


def _candidate_values(first: Law, second: Law, path: str) -> tuple[KnobValue | None, ...]:
    """All values of a setting with named choices; of a whole number, the values that the laws name, and None for all others."""
    entry = VOCABULARY[path]
    choices = (True, False) if entry.kind == BOOL else entry.choices
    return choices or (*dict.fromkeys((*first.values(path), *second.values(path))), None)


def _allows(law: Law, path: str, value: KnobValue | None) -> bool:
    """Whether a law that acts leaves the value, if its other settings have the values that it names."""
    return any(same_choice(value, listed) for listed in law.values(path)) is not law.forbids


def _search(first: Law, second: Law, path: str) -> Contradiction | None:
    names = first.names | second.names
    if None in _candidate_values(first, second, path) and any(
        path in when.names for law in (first, second) for when in law.conditions
    ):
        return None  # for every other number it would have to be proven that both act
    for region in decided_regions(lambda: _regions(first, second, path))[:MAX_REGIONS]:
        for values in situations(region, names - {path}):
            row = _witness_row(first, second, path, values)
            if row is not None:
                shown_names = names | {name for name, value in values.items() if name in SETTINGS and value != 1}
                witness = {name: row[name] for name in shown_names if name != path and name in row}
                return Contradiction(first=first, second=second, path=path, witness=witness)
    return None


def _regions(first: Law, second: Law, path: str) -> Regions:
    """Regions in which both laws may act and their other settings have the values that they name; the simplest first."""
    regions: list[Regions] = []
    for law in (first, second):
        regions += [holds(when) for when in law.conditions]
        regions.append(selected([setting for setting in law.effect.settings if setting.path != path]))
    return sorted(intersection(*regions), key=len)


def _witness_row(first: Law, second: Law, path: str, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A candidate of a situation in which each law alone leaves a value and both together leave none; None for others."""
    possible_values = [value for value in _candidate_values(first, second, path) if value is not None]
    if len(possible_values) < len(_candidate_values(first, second, path)):  # SAMPLE_NUMBERS represent all other numbers
        possible_values += [number for number in SAMPLE_NUMBERS if number not in possible_values]
    rows = [row for row in (complete_facts({**values, path: value}) for value in possible_values) if row is not None]
    first_allows, second_allows = [[not law.drops(row) for row in rows] for law in (first, second)]
    return (
        rows[first_allows.index(True)]
        if any(first_allows) and any(second_allows) and not any(map(all, zip(first_allows, second_allows, strict=True)))
        else None
    )


def _demand_text(law: Law, path: str) -> str:
    values = " or ".join(map(show_value, law.values(path)))
    return f"{law.effect.kind.value}s {path} = {values}"


def _value_text(name: str, value: Any) -> str:
    if VOCABULARY[name].unit == "bytes":
        return show_bytes(value)
    return f"{value:.6g}" if isinstance(value, float) else show_value(value)
