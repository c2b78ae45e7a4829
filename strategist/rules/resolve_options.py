"""Resolves one option (a setting without a price): the values that cards allow, and the most preferred of them."""

from collections.abc import Iterator, Sequence

from strategist.cards.card import HARD, EffectKind, Phase
from strategist.cards.deck import Deck, PolicyRef
from strategist.contract.knobs import KnobValue
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import VOCABULARY
from strategist.rules.policy_matching import acts_for, holds_for, requested_values, selects_row


def resolve(deck: Deck, facts: Facts, path: str, values: Sequence[KnobValue]) -> KnobValue:
    """The value of a setting: of ``values`` what laws leave; of these what cards set, then what most cards prefer, then the first.

    ``facts`` are all that is known of the candidate. A whole number may also become what a policy names or computes.
    Where laws leave nothing the first value stands.
    """
    policy_refs = tuple(ref for ref in deck.policy_refs.get(path, ()) if ref.policy.phase is Phase.PLAN)
    if not policy_refs:
        return values[0]
    named = () if VOCABULARY[path].choices else _named(policy_refs, facts, path)
    candidates: list[KnobValue] = [*dict.fromkeys((*values, *named))]
    left = [value for value in candidates if all(_keeps(ref, facts, path, value) for ref in policy_refs)] or candidates[:1]
    for ref in policy_refs:
        if ref.effect.kind is EffectKind.SET:
            left = [value for value in left if _meets(ref, facts, path, value) is not False] or left
    likes = [ref for ref in policy_refs if ref.effect.kind is EffectKind.PREFER]
    return max(left, key=lambda value: sum(_meets(ref, facts, path, value) is True for ref in likes))


def _keeps(ref: PolicyRef, facts: Facts, path: str, value: KnobValue) -> bool:
    """Whether a law leaves the value; what is no law leaves all."""
    if ref.effect.kind not in HARD:
        return True
    met = _meets(ref, facts, path, value)
    return met is None or met is (ref.effect.kind is not EffectKind.FORBID)


def _meets(ref: PolicyRef, facts: Facts, path: str, value: KnobValue) -> bool | None:
    """Whether the candidate with this value has what the effect names; None where the policy does not act on it."""
    row = {**facts, path: value}
    if not (holds_for(ref.card, row) and acts_for(ref.policy, row)):
        return None
    return selects_row(ref.effect, row)


def _named(policy_refs: Sequence[PolicyRef], facts: Facts, path: str) -> Iterator[int]:
    """Whole numbers that acting policies ask for."""
    for ref in policy_refs:
        if ref.effect.kind is EffectKind.FORBID or not (holds_for(ref.card, facts) and acts_for(ref.policy, facts)):
            continue
        for setting in ref.effect.settings:
            if setting.path == path:
                yield from (value for value in requested_values(setting, facts) if isinstance(value, int))
