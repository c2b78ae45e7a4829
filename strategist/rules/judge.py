"""Cards over candidates: which are allowed, who dropped the others, which are preferred, and why a candidate is as it is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.cards.card import HARD, Card, Effect, EffectKind, Phase, Policy, Risk, Setting
from strategist.cards.deck import Deck
from strategist.contract.knobs import show_value
from strategist.contract.plan import Reason
from strategist.expr.columns import Columns
from strategist.expr.evaluate import Facts, Mask, scalar
from strategist.expr.vocabulary import setting as setting_named
from strategist.rules.acting import Where, acts, acts_for, holds, holds_for, selects, selects_row


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Candidates that a policy was the first to drop."""

    card: str
    policy: str
    because: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a deck forbids of a table: the rows allowed, and who dropped how many others."""

    allowed: Mask
    dropped: tuple[Drop, ...]


@dataclass(frozen=True)
class _Rule:
    """One effect of one policy with the place where its card's preconditions hold."""

    card: Card
    policy: Policy
    effect: Effect
    where: Where


def judge(
    deck: Deck,
    facts: Facts,
    columns: Columns,
    fixed: frozenset[str] = frozenset(),
    weights: NDArray[np.int64] | None = None,
    *,
    among: Mask | None = None,
    defaults: bool = True,
) -> Judgement:
    """Applies the narrowing plan-phase policies of the deck; laws alone, without ``defaults``.

    Laws (require, forbid) come first, in card order; then defaults (set), of which one that would leave nothing gives way.
    ``fixed`` names settings, bare or in full, over which defaults have no say: what the user fixed, or allowed to
    change. ``weights`` count for the rows, where a row stands for several candidates; ``among`` are those that count at all.
    """
    weights = np.ones(columns.rows, dtype=np.int64) if weights is None else weights
    rules = list(_rules(deck, facts, columns))
    allowed: Mask = np.ones(columns.rows, dtype=np.bool_) if among is None else among
    drops = []
    for rule in rules:
        if rule.effect.kind in HARD:
            allowed, drop = _drop(rule, allowed, _kept(rule, rule.effect, facts, columns), weights)
            drops.append(drop)
    free = frozenset(name.name for name in map(setting_named, fixed) if name)
    for rule in rules:
        if defaults and rule.effect.kind is EffectKind.SET:
            settings = tuple(setting for setting in rule.effect.settings if setting.path not in free)
            kept = _kept(rule, Effect(kind=EffectKind.SET, settings=settings), facts, columns)
            narrowed, drop = _drop(rule, allowed, kept, weights)
            if narrowed.any() or not allowed.any():
                allowed = narrowed
                drops.append(drop)
    dropped = tuple(drop for drop in drops if drop is not None)
    return Judgement(allowed=allowed, dropped=dropped)


def _rules(deck: Deck, facts: Facts, columns: Columns) -> Iterator[_Rule]:
    for card in deck.cards:
        policies = [policy for policy in card.policies if policy.phase is Phase.PLAN and policy.effects]
        where = holds(card, facts, columns) if policies else False
        if where is not False:
            yield from (_Rule(card, policy, effect, where) for policy in policies for effect in policy.effects)


def _kept(rule: _Rule, effect: Effect, facts: Facts, columns: Columns) -> Where:
    """The candidates that a narrowing effect leaves."""
    where = rule.where & acts(rule.policy, facts, columns)
    if where is False or any(setting.path not in columns.values or setting.change for setting in effect.settings):
        return True  # of what is computed for each candidate no table tells
    selected = selects(effect, columns)
    return np.logical_not(where & selected) if effect.kind is EffectKind.FORBID else np.logical_not(where) | selected


def _drop(rule: _Rule, allowed: Mask, kept: Where, weights: NDArray[np.int64]) -> tuple[Mask, Drop | None]:
    if kept is True:
        return allowed, None
    remaining = allowed & kept
    rows = int(weights[allowed & ~remaining].sum())
    because = str(rule.policy.because)
    return remaining, Drop(card=rule.card.id, policy=rule.policy.id, because=because, rows=rows) if rows else None


def preferences(deck: Deck, facts: Facts, columns: Columns) -> NDArray[np.float64]:
    """How many preferences of the deck each candidate meets."""
    count = np.zeros(columns.rows, dtype=np.float64)
    for rule in _rules(deck, facts, columns):
        if rule.effect.kind is EffectKind.PREFER:
            where = rule.where & acts(rule.policy, facts, columns)
            if where is not False:
                count += where & selects(rule.effect, columns)
    return count


def reasons(deck: Deck, facts: Facts, row_values: Mapping[str, Any]) -> tuple[Reason, ...]:
    """Which policies shaped one candidate, and which risks it runs; in card order.

    A law or default counts where its condition holds and the candidate keeps it, a preference where it is met. The fallback of a
    risk stands in its text.
    """
    known = {**facts, **row_values}
    found = []
    for card in deck.cards:
        if not holds_for(card, known):
            continue
        for policy in card.policies:
            if policy.phase is Phase.PLAN and policy.effects and acts_for(policy, known):
                text = str(policy.because)
                kinds = [effect.kind.value for effect in policy.effects if _shaped(effect, known)]
                found += [Reason(card=card.id, policy=policy.id, effect=kind, text=text) for kind in kinds]
        for risk in card.risks:
            if risk.when is not None and scalar(risk.when, known) is True:
                found.append(Reason(card=card.id, policy=risk.id, effect="risk", text=_risk_text(risk)))
    return tuple(found)


def _shaped(effect: Effect, row: Mapping[str, Any]) -> bool:
    if effect.kind is EffectKind.FORBID:
        return bool(effect.settings) and not selects_row(effect, row)
    return effect.kind is EffectKind.WARN or selects_row(effect, row)


def _risk_text(risk: Risk) -> str:
    fallback = f" Fallback: {', '.join(map(show_setting, risk.fallback))}." if risk.fallback else ""
    return f"{risk.text}{fallback}"


def show_setting(setting: Setting) -> str:
    """``recompute = full`` or ``micro_batch = knobs.micro_batch * 2``."""
    name = setting.path.partition(".")[2]
    if setting.change is not None:
        return f"{name} = {setting.change.text}"
    return f"{name} = {' or '.join(map(show_value, setting.values))}"
