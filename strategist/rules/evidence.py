"""Which policies the measured trials confirmed or contradicted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from strategist.cards.card import Card, Effect, EffectKind, Phase, Policy
from strategist.cards.deck import Deck
from strategist.expr.vocabulary import REQUEST, SETTINGS, VOCABULARY
from strategist.rules.acting import acts_for, holds_for, selects_row

Trial = tuple[Mapping[str, Any], float | None]
"""Facts and settings of a trial by vocabulary name, and its measured step seconds; None when it failed."""

MARGIN = 0.02
"""Share by which one step must be shorter to count as faster."""

_COMPARED = (*SETTINGS, *(name for name, entry in VOCABULARY.items() if entry.phase == REQUEST))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Pairs of trials that spoke for and against a policy."""

    card: str
    policy: str
    confirmed: int
    contradicted: int


def evidence(deck: Deck, trials: Sequence[Trial]) -> tuple[Evidence, ...]:
    """For each policy that requires, sets or prefers a setting, and on which a pair of trials speaks: how often for and against.

    A pair differs in nothing but the policy's settings, and one side has what it asks for. Where that is a degree of the layout,
    the other degrees may differ as well, since their product is the number of devices. Who ran beats who failed.
    """
    found = []
    for card in deck.cards:
        for policy in card.policies:
            counts = [0, 0]
            for effect in _asking(policy):
                for better in _verdicts(card, policy, effect, trials):
                    counts[not better] += 1
            if any(counts):
                found.append(Evidence(card=card.id, policy=policy.id, confirmed=counts[0], contradicted=counts[1]))
    return tuple(found)


def _asking(policy: Policy) -> Iterator[Effect]:
    kinds = (EffectKind.REQUIRE, EffectKind.SET, EffectKind.PREFER)
    return (effect for effect in policy.effects if policy.phase is Phase.PLAN and effect.kind in kinds and effect.settings)


def _verdicts(card: Card, policy: Policy, effect: Effect, trials: Sequence[Trial]) -> Iterator[bool]:
    """True for each pair in which the side that has the settings was better, False where it was worse."""
    free = {setting.path for setting in effect.settings}
    if any(path.startswith("layout.") for path in free):
        free |= {path for path in SETTINGS if path.startswith("layout.")}
    for left, right in combinations(trials, 2):
        with_it, without = (left, right) if selects_row(effect, left[0]) else (right, left)
        if not selects_row(effect, with_it[0]) or selects_row(effect, without[0]):
            continue
        if not (holds_for(card, with_it[0]) and acts_for(policy, with_it[0])) or not _alike(with_it[0], without[0], free):
            continue
        better = _better(with_it[1], without[1])
        if better is not None:
            yield better


def _alike(left: Mapping[str, Any], right: Mapping[str, Any], free: set[str]) -> bool:
    return all(left.get(name) == right.get(name) for name in _COMPARED if name not in free)


def _better(seconds: float | None, other: float | None) -> bool | None:
    if seconds is None or other is None:
        return None if seconds is other else other is None
    if abs(seconds - other) <= MARGIN * max(seconds, other):
        return None
    return seconds < other
