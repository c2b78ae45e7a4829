"""Observe-phase policies: proposals and warnings after a trial."""

from collections.abc import Mapping
from typing import Any

from strategist.cards.card import Card, EffectKind, Phase, Policy, Setting
from strategist.cards.deck import Deck
from strategist.contract.knobs import KnobValue
from strategist.contract.plan import Reason
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import same_choice
from strategist.frozen import frozen
from strategist.rules.policy_matching import condition_holds, preconditions_hold, requested_values


@frozen
class Proposal:
    """Changes to try, by full setting name, and the policy that proposes them."""

    card: str
    policy: str
    changes: dict[str, KnobValue]
    because: str


def observed_proposals(deck: Deck, facts: Facts, row_values: Mapping[str, Any]) -> tuple[Proposal, ...]:
    """Proposals of the deck's observe-phase policies for a candidate, in card order; ``facts`` include ``observed.*``.

    If the candidate has none of a setting's values, the first is proposed. A policy proposes nothing where its change cannot be
    computed, or would change nothing.
    """
    known = {**facts, **row_values}
    found = (propose(card, policy, known) for card in deck.cards for policy in card.policies)
    return tuple(proposal for proposal in found if proposal is not None)


def warnings(deck: Deck, facts: Facts, row_values: Mapping[str, Any]) -> tuple[Reason, ...]:
    """Warnings of the deck's observe-phase policies after a trial, in card order; ``facts`` include ``observed.*``."""
    known = {**facts, **row_values}
    return tuple(
        Reason(card=card.id, policy=policy.id, effect=EffectKind.WARN.value, text=str(policy.because))
        for card in deck.cards
        for policy in card.policies
        if policy.phase is Phase.OBSERVE and any(effect.kind is EffectKind.WARN for effect in policy.effects)
        if condition_holds(policy, known) and preconditions_hold(card, known)
    )


def propose(card: Card, policy: Policy, known: Facts) -> Proposal | None:
    """Proposal of one policy after a trial with the values ``known``; None where it has none."""
    if policy.phase is not Phase.OBSERVE or not (condition_holds(policy, known) and preconditions_hold(card, known)):
        return None
    settings = [setting for effect in policy.effects if effect.kind is EffectKind.TRY for setting in effect.settings]
    changes = _changes(settings, known)
    return Proposal(card=card.id, policy=policy.id, changes=changes, because=str(policy.because)) if changes else None


def _changes(settings: list[Setting], known: Facts) -> dict[str, KnobValue]:
    changes: dict[str, KnobValue] = {}
    for setting in settings:
        current = known.get(setting.path)
        values = requested_values(setting, known)
        if not values:
            return {}
        if not any(same_choice(value, current) for value in values):
            changes[setting.path] = values[0]
    return changes
