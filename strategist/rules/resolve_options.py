"""Resolves one option (a setting without a price): the values that cards allow, and the most preferred of them."""

from collections.abc import Iterator, Sequence

from strategist.cards.card import HARD, EffectKind, Phase
from strategist.cards.deck import Deck, PolicyRef
from strategist.contract.knobs import KnobValue
from strategist.expr.evaluate import Facts
from strategist.expr.vocabulary import VOCABULARY
from strategist.rules.policy_matching import acts_for, asked, holds_for, selects_row


def settle(deck: Deck, facts: Facts, path: str, values: Sequence[KnobValue]) -> KnobValue:
    """The value of a setting: of ``values`` what laws leave; of these what cards set, then what most cards prefer, then the first.

    ``facts`` are all that is known of the candidate. A whole number may also become what a policy names or computes.
    Where laws leave nothing the first value stands.
    """
    voices = tuple(voice for voice in deck.voices.get(path, ()) if voice.policy.phase is Phase.PLAN)
    if not voices:
        return values[0]
    named = () if VOCABULARY[path].choices else _named(voices, facts, path)
    candidates: list[KnobValue] = [*dict.fromkeys((*values, *named))]
    left = [value for value in candidates if all(_keeps(voice, facts, path, value) for voice in voices)] or candidates[:1]
    for voice in voices:
        if voice.effect.kind is EffectKind.SET:
            left = [value for value in left if _meets(voice, facts, path, value) is not False] or left
    likes = [voice for voice in voices if voice.effect.kind is EffectKind.PREFER]
    return max(left, key=lambda value: sum(_meets(voice, facts, path, value) is True for voice in likes))


def _keeps(voice: PolicyRef, facts: Facts, path: str, value: KnobValue) -> bool:
    """Whether a law leaves the value; what is no law leaves all."""
    if voice.effect.kind not in HARD:
        return True
    met = _meets(voice, facts, path, value)
    return met is None or met is (voice.effect.kind is not EffectKind.FORBID)


def _meets(voice: PolicyRef, facts: Facts, path: str, value: KnobValue) -> bool | None:
    """Whether the candidate with this value has what the effect names; None where the policy does not act on it."""
    row = {**facts, path: value}
    if not (holds_for(voice.card, row) and acts_for(voice.policy, row)):
        return None
    return selects_row(voice.effect, row)


def _named(voices: Sequence[PolicyRef], facts: Facts, path: str) -> Iterator[int]:
    """Whole numbers that acting policies ask for."""
    for voice in voices:
        if voice.effect.kind is EffectKind.FORBID or not (holds_for(voice.card, facts) and acts_for(voice.policy, facts)):
            continue
        for setting in voice.effect.settings:
            if setting.path == path:
                yield from (value for value in asked(setting, facts) if isinstance(value, int))
