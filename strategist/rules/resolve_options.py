"""Resolution of one option (a setting without an effect on the price): the allowed values, and the most preferred of them."""

from collections.abc import Iterator, Sequence

from strategist.cards.card import LAWS, EffectKind, Phase
from strategist.cards.deck import Deck, PolicyRef
from strategist.contract.knobs import KnobValue
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import VOCABULARY
from strategist.rules.policy_matching import condition_holds, preconditions_hold, requested_values, selects_row


def resolve(deck: Deck, facts: Facts, path: str, values: Sequence[KnobValue]) -> KnobValue:
    """Resolved value of the setting ``path``, one of ``values`` or a number that a policy names or computes.

    Laws (require, forbid) remove values; where they remove all, the first value stays. Of the rest, defaults (set) keep what they
    name, then the value with the most preferences is chosen (of ties the first). ``facts`` are all known values of the candidate.
    """
    policy_refs = tuple(ref for ref in deck.policy_refs.get(path, ()) if ref.policy.phase is Phase.PLAN)
    if not policy_refs:
        return values[0]
    named_values = () if VOCABULARY[path].choices else _named_values(policy_refs, facts, path)
    candidates: list[KnobValue] = [*dict.fromkeys((*values, *named_values))]
    if len(candidates) == 1:
        return candidates[0]
    rows = {value: {**facts, path: value} for value in candidates}
    allowed = [value for value in candidates if all(_law_allows(ref, rows[value]) for ref in policy_refs)]
    remaining = allowed or candidates[:1]
    for ref in policy_refs:
        if ref.effect.kind is EffectKind.SET:
            remaining = [value for value in remaining if _fulfills(ref, rows[value]) is not False] or remaining
    preferences = [ref for ref in policy_refs if ref.effect.kind is EffectKind.PREFER]
    return max(remaining, key=lambda value: sum(_fulfills(ref, rows[value]) is True for ref in preferences))


def _law_allows(ref: PolicyRef, row: Facts) -> bool:
    """Whether a law allows a candidate's value; policies that are not laws allow all."""
    if ref.effect.kind not in LAWS:
        return True
    fulfilled = _fulfills(ref, row)
    return fulfilled is None or fulfilled is (ref.effect.kind is not EffectKind.FORBID)


def _fulfills(ref: PolicyRef, row: Facts) -> bool | None:
    """Whether the candidate has the effect's settings; None where the policy does not apply."""
    if not (preconditions_hold(ref.card, row) and condition_holds(ref.policy, row)):
        return None
    return selects_row(ref.effect, row)


def _named_values(policy_refs: Sequence[PolicyRef], facts: Facts, path: str) -> Iterator[int]:
    """Whole numbers that applicable policies name or compute."""
    for ref in policy_refs:
        if ref.effect.kind is EffectKind.FORBID or not (preconditions_hold(ref.card, facts) and condition_holds(ref.policy, facts)):
            continue
        for setting in ref.effect.settings:
            if setting.path == path:
                yield from (value for value in requested_values(setting, facts) if isinstance(value, int))
