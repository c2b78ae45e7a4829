"""Checks of a deck's cards against each other."""

from collections.abc import Callable, Iterator
from functools import partial

from strategist.cards.card import LAWS, Card, Effect, EffectKind, Phase, Policy
from strategist.cards.deck import Deck
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.lint.contradiction import contradictions
from strategist.lint.regions import dropped_regions, remaining_regions
from strategist.lint.registry import Subject, check, finding
from strategist.lint.satisfiability import Regions, decided_regions, intersection, is_impossible


@check("CARD035", Level.ERROR, "Laws of a deck that act together leave a candidate.")
def laws_are_consistent(subject: Subject) -> Iterator[Diagnostic]:
    """Two policies act on the same facts and candidate, and one requires what the other forbids, or another value of the same
    setting. With a default (set) it is a warning, because defaults give way if no candidate would be left.

    Why: If both act, no value of the setting is left, and every such candidate is dropped. The message shows a witness: a
    situation for which this was evaluated.
    Do: narrow one of the conditions, or make one of the two a default (set) or a preference (prefer)
    Bad:
        - {id: a, when: layout.tp > 1, require: {recompute: full}, because: ...}
        - {id: b, when: model.layers > 8, forbid: {recompute: full}, because: ...}
    Good:
        - {id: a, when: layout.tp > 1, require: {recompute: full}, because: ...}
        - {id: b, when: model.layers > 8 and layout.tp == 1, forbid: {recompute: full}, because: ...}
    """
    card = subject.sound
    for found in contradictions(card, subject.deck) if card and subject.others.get(card.id) is card else ():
        index = found.second.card.policies.index(found.second.policy)
        default = EffectKind.SET in (found.first.effect.kind, found.second.effect.kind)
        level = Level.WARNING if default else Level.ERROR
        yield finding(subject, "CARD035", str(found), ("policies", index, found.second.effect.kind), level=level)


@check("CARD036", Level.INFO, "A card replaces another only on purpose.")
def card_replaces_another(subject: Subject) -> Iterator[Diagnostic]:
    """The card or flow has the id of one in another folder, and replaces it.

    Why: A shipped card is changed by a card with the same id; by accident, that removes a card without any error.
    Do: nothing if this is intended; otherwise give it its own id
    Bad:
        id: FSDP-001     # in a folder of your own, for another piece of knowledge
    Good:
        id: MY-001
    """
    item = subject.card or subject.flow
    if item and subject.replaces:
        yield finding(subject, "CARD036", f"{item.id} replaces {subject.replaces}", ("id",))


@check("CARD037", Level.WARNING, "A law or default drops a candidate that no other law drops.")
def policy_is_needed(subject: Subject) -> Iterator[Diagnostic]:
    """Every candidate that a policy drops is dropped by another law of the deck as well, whose condition is weaker.

    Why: It never changes a plan, and of the same knowledge in two places, one goes out of date.
    Do: drop it, or widen its condition
    Bad:
        - {id: narrow, when: layout.tp > 4, forbid: {recompute: none}, because: ...}   # and a law with when: layout.tp > 1
    Good:
        - {id: wide, when: layout.tp > 1, forbid: {recompute: none}, because: ...}
    """
    card = subject.sound
    for index, policy in enumerate(card.policies if card else ()):
        if card and policy.effects and policy.phase is Phase.PLAN and all(_drops(effect) for effect in policy.effects):
            covering_laws = [_covering_law(card, index, policy, effect, subject.deck) for effect in policy.effects]
            if all(covering_laws):
                yield finding(
                    subject, "CARD037", f"policy {policy.id} drops only what {covering_laws[0]} drops", ("policies", index)
                )


def _drops(effect: Effect) -> bool:
    return effect.kind in (*LAWS, EffectKind.SET) and bool(effect.settings)


def _covering_law(card: Card, index: int, policy: Policy, effect: Effect, deck: Deck) -> str:
    """A law that drops all that the effect drops; empty without one. Of two that drop the same, the later one is redundant."""
    rejected = decided_regions(lambda: dropped_regions(card, policy, effect))
    terms = {term for region in rejected for term in region}
    for other, other_index, other_policy, other_effect in _laws(deck):
        is_later = (other.id, other_index) > (card.id, index)
        is_earlier = other.id == card.id and other_index <= index  # then the policy is unreachable: CARD034
        if not rejected or is_earlier or not {setting.path for setting in other_effect.settings} <= terms:
            continue
        if _is_empty_intersection(rejected, partial(remaining_regions, other, other_policy, other_effect)) and not (
            is_later and _are_equivalent(card, policy, effect, other, other_policy, other_effect)
        ):
            return f"{other.id}/{other_policy.id}"
    return ""


def _laws(deck: Deck) -> Iterator[tuple[Card, int, Policy, Effect]]:
    for card in deck.cards:
        for index, policy in enumerate(card.policies):
            if policy.phase is Phase.PLAN:
                yield from ((card, index, policy, effect) for effect in policy.effects if effect.kind in LAWS and effect.settings)


def _is_empty_intersection(regions: Regions, other_regions: Callable[[], Regions]) -> bool:
    """Whether no candidate lies in both sets of regions."""
    return is_impossible(lambda: intersection(regions, other_regions()))


def _are_equivalent(card: Card, policy: Policy, effect: Effect, other: Card, other_policy: Policy, other_effect: Effect) -> bool:
    """Whether both effects drop the same candidates, as far as that can be proven."""
    return effect.kind in LAWS and _is_empty_intersection(
        decided_regions(lambda: dropped_regions(other, other_policy, other_effect)),
        partial(remaining_regions, card, policy, effect),
    )
