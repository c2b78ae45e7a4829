"""Evaluates policies over candidates: allowed candidates, rejections by policy, preferences and reasons."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.cards.card import LAWS, Card, Effect, EffectKind, Phase, Policy, Risk, Setting
from strategist.cards.deck import Deck, PositionedEffect
from strategist.contract.knobs import show_value
from strategist.contract.plan import Reason
from strategist.expr.columns import Columns
from strategist.expr.evaluate import Facts, Mask, is_anywhere, scalar
from strategist.expr.vocabulary import setting as setting_named
from strategist.frozen import frozen
from strategist.rules.policy_matching import Where, acts, condition_holds, holds, preconditions_hold, selects, selects_row


@frozen
class Rejection:
    """Number of candidates that were first dropped by this policy."""

    card: str
    policy: str
    because: str
    rows: int


Number = tuple[int, int]
"""Indices of an effect's card, and of the effect, in the deck's order."""


@frozen
class Judgement:
    """Result of a deck's laws, and of its ``defaults`` if these were applied, on a table with the columns ``names``: the mask of
    allowed rows, rejections by policy, and the defaults that were skipped because they would have left no row.
    """

    names: frozenset[str]
    defaults: bool
    allowed: Mask
    dropped: tuple[Rejection, ...]
    gave_way: frozenset[Number]


@dataclass(frozen=True)
class _Rule:
    """One effect of one policy, with the rows for which the card's preconditions hold."""

    number: Number
    card: Card
    policy: Policy
    effect: Effect
    where: Where


SHRINK_ROWS = 2048
"""Tables with more rows are compacted as soon as more than half of the rows are dropped."""

PART_ROWS = 2**17
"""Rows evaluated at a time, so that columns fit the processor's cache and memory is bounded."""


class _AllowedRows:
    """The rows of a table that are still allowed. Large tables are compacted: dropped rows are removed from the columns."""

    def __init__(self, columns: Columns, weights: NDArray[np.int64] | None, among: Mask) -> None:
        self.columns, self.weights, self.allowed = columns, weights, among
        self.rows, self.places = columns.rows, np.arange(columns.rows)

    @property
    def any(self) -> bool:
        """Whether a row is still allowed."""
        return bool(self.allowed.any())

    def keep(self, kept: Where) -> int:
        """Drops the rows that a rule does not keep. Returns the weight of the rows that this rule is the first to drop."""
        if kept is True:
            return 0
        remaining = self.allowed & kept
        dropped = self.allowed & ~remaining
        self.allowed = remaining
        return int(np.count_nonzero(dropped) if self.weights is None else self.weights[dropped].sum())

    def shrink(self) -> None:
        """Compacts a large table with many dropped rows.

        Only between two cards: masks of a card refer to the table's current rows.
        """
        if self.columns.rows > SHRINK_ROWS and 2 * np.count_nonzero(self.allowed) < self.columns.rows:
            self.refresh()

    def refresh(self) -> None:
        """Removes the dropped rows, and with them the columns gathered so far."""
        self.columns = self.columns.among(self.allowed)
        self.weights = None if self.weights is None else self.weights[self.allowed]
        self.places = self.places[self.allowed]
        self.allowed = np.ones(len(self.places), dtype=np.bool_)

    def mask(self) -> Mask:
        """Mask of the allowed rows over the whole original table."""
        found = np.zeros(self.rows, dtype=np.bool_)
        found[self.places[self.allowed]] = True
        return found


class _Tally:
    """Weight of the rows that each rule was the first to drop, summed over parts of a table."""

    def __init__(self) -> None:
        self._rows: dict[Number, tuple[_Rule, int]] = {}

    def add(self, rule: _Rule, rows: int) -> None:
        """Adds the dropped weight of one part of a table."""
        if rows:
            _, before = self._rows.get(rule.number, (rule, 0))
            self._rows[rule.number] = rule, before + rows

    @property
    def drops(self) -> tuple[Rejection, ...]:
        """One Rejection per rule, in deck order."""
        rules = (self._rows[number] for number in sorted(self._rows))
        return tuple(
            Rejection(card=rule.card.id, policy=rule.policy.id, because=str(rule.policy.because), rows=rows) for rule, rows in rules
        )


def judge(
    deck: Deck,
    facts: Facts,
    columns: Columns,
    fixed: frozenset[str] = frozenset(),
    weights: NDArray[np.int64] | None = None,
    *,
    among: Mask | None = None,
    defaults: bool = True,
    earlier: Sequence[Judgement] = (),
) -> Judgement:
    """Applies the plan-phase policies that drop candidates. Without ``defaults``, only laws are applied.

    Laws (require, forbid) come first, in card order; then defaults (set). A default that would leave no row is skipped.

    Args:
        fixed: settings, bare or in full, to which defaults do not apply: fixed or allowed by the user.
        weights: number of candidates that each row stands for; None for 1.
        among: mask of the rows to consider; None for all.
        earlier: judgements of tables with some of the columns, to which all rows keep: what these decided is not evaluated again.
    """
    among = np.ones(columns.rows, dtype=np.bool_) if among is None else among
    laws, defaulting = _laws_and_defaults(deck, facts, fixed, earlier)
    tally, parts = _Tally(), []
    for place, part in columns.parts(PART_ROWS):
        alive = _AllowedRows(part, None if weights is None else weights[place], among[place])
        for rule in laws.that_apply(alive):
            tally.add(rule, alive.keep(_kept(rule, facts, alive.columns)))
        if part is not columns:
            alive.refresh()
        parts.append(alive)
    masks, by_defaults = [alive.mask() for alive in parts], _Tally()
    gave_way = frozenset[Number]().union(*(judgement.gave_way for judgement in earlier))
    if defaults:
        masks, by_defaults, gave_way = _with_defaults(defaulting, parts, gave_way)
    return Judgement(
        names=columns.names, defaults=defaults,
        allowed=np.concatenate(masks), dropped=(*tally.drops, *by_defaults.drops), gave_way=gave_way,
    )  # fmt: skip


def undecided(
    deck: Deck, names: frozenset[str], fixed: frozenset[str], earlier: Sequence[Judgement], *, defaults: bool
) -> Iterator[tuple[Card, Policy, Effect]]:
    """The effects that :func:`judge` evaluates on tables with columns of these names."""
    for rules in _laws_and_defaults(deck, {}, fixed, earlier)[: 1 + defaults]:
        for card, placed in rules.cards(names):
            yield from ((card, policy, effect) for _, policy, effect in placed)


def _laws_and_defaults(deck: Deck, facts: Facts, fixed: frozenset[str], earlier: Sequence[Judgement]) -> tuple["_Rules", "_Rules"]:
    """The laws, and the defaults of settings that are not ``fixed``, that no ``earlier`` judgement decided."""
    free = frozenset(name.name for name in map(setting_named, fixed) if name)
    by_laws = tuple(judgement.names for judgement in earlier)
    by_defaults = tuple(judgement.names for judgement in earlier if judgement.defaults)
    return _Rules(deck, facts, LAWS, decided=by_laws), _Rules(deck, facts, (EffectKind.SET,), free=free, decided=by_defaults)


def _with_defaults(
    rules: "_Rules", parts: Sequence[_AllowedRows], gave_way: frozenset[Number]
) -> tuple[list[Mask], _Tally, frozenset[Number]]:
    """Mask of each part of a table after the defaults, their rejections, and the defaults that were skipped.

    Whether a default leaves no row of a table is known only after all parts are processed; the parts are then processed again
    without it.
    """
    giving_way = set(gave_way)
    while True:
        tally, masks, after = _Tally(), [], []
        for part in parts:
            alive = copy(part)
            if len(parts) > 1:
                alive.refresh()
            after.append(_keep_defaults(rules, alive, giving_way, tally, is_whole=len(parts) == 1))
            masks.append(alive.mask())
        number = _first_emptying_rule([part.any for part in parts], after)
        if number is None:
            return masks, tally, frozenset(giving_way)
        giving_way.add(number)


def _keep_defaults(
    rules: "_Rules", alive: _AllowedRows, giving_way: set[Number], tally: _Tally, *, is_whole: bool
) -> dict[Number, bool]:
    """Applies the defaults that are not ``giving_way`` to one part of a table, and returns whether rows remain after each rule.

    If the part ``is_whole``, the whole table, defaults that would leave no row are added to ``giving_way`` at once.
    """
    left = {}
    for rule in rules.that_apply(alive):
        if rule.number in giving_way:
            continue
        kept = _kept(rule, rules.facts, alive.columns)
        if is_whole and alive.any and not is_anywhere(alive.allowed & kept):
            giving_way.add(rule.number)
        else:
            tally.add(rule, alive.keep(kept))
            left[rule.number] = alive.any
    return left


def _first_emptying_rule(before: Sequence[bool], after: Sequence[Mapping[Number, bool]]) -> Number | None:
    """The first rule after which no part has an allowed row; None if there is none.

    ``after``: by part and rule, whether rows remain.
    """
    now = list(before)
    for number in sorted({number for left in after for number in left}):
        later = [left.get(number, state) for left, state in zip(after, now, strict=True)]
        if any(now) and not any(later):
            return number
        now = later
    return None


@dataclass(frozen=True)
class _Rules:
    """Effects of these kinds, without settings that are ``free``; effects that a table with columns ``decided`` decides are left
    out.
    """

    deck: Deck
    facts: Facts
    kinds: tuple[EffectKind, ...]
    free: frozenset[str] = frozenset()
    decided: tuple[frozenset[str], ...] = ()

    def cards(self, names: frozenset[str]) -> tuple[tuple[Card, tuple[PositionedEffect, ...]], ...]:
        """The effects on tables with columns of these names, by card."""
        return self.deck.cards_setting_only(names, self.kinds, self.free, self.decided)

    def that_apply(self, alive: _AllowedRows) -> Iterator[_Rule]:
        """The effects that apply to a table."""
        for card, placed in self.cards(alive.columns.names):
            alive.shrink()
            where = holds(card, self.facts, alive.columns)
            if where is not False:
                yield from (_Rule(number, card, policy, effect, where) for number, policy, effect in placed)


def _kept(rule: _Rule, facts: Facts, columns: Columns) -> Where:
    """Mask of the candidates that a law or default keeps."""
    where = rule.where & acts(rule.policy, facts, columns)
    if not is_anywhere(where):
        return True
    selected = selects(rule.effect, columns)
    return np.logical_not(where & selected) if rule.effect.kind is EffectKind.FORBID else np.logical_not(where) | selected


def preferences(deck: Deck, facts: Facts, columns: Columns) -> NDArray[np.float64]:
    """Preference score per candidate: minus 1 for each preference of the deck that applies to the candidate and is not met.

    A preference applies where the card's preconditions hold and, for ``prefer: {k: v}``, where its condition holds; for ``prefer:
    candidate``, the condition itself is the preference. A candidate that does not use a technique therefore loses nothing by advice
    on how to use it.
    """
    score = np.zeros(columns.rows, dtype=np.float64)
    everything = _AllowedRows(columns, None, np.ones(columns.rows, dtype=np.bool_))
    for rule in _Rules(deck, facts, (EffectKind.PREFER,)).that_apply(everything):
        acting = acts(rule.policy, facts, columns)
        met = np.logical_and(acting, selects(rule.effect, columns))
        concerned = rule.where & acting if rule.effect.settings else rule.where
        score -= concerned & ~met
    return score


def reasons(deck: Deck, facts: Facts, row_values: Mapping[str, Any]) -> tuple[Reason, ...]:
    """Policies that shaped one candidate, and the risks that apply to it, in card order.

    A law or default counts where its condition holds and the candidate complies, a preference where it is met. A risk's text
    includes its fallback.
    """
    known = {**facts, **row_values}
    found = []
    for card in deck.cards:
        if not preconditions_hold(card, known):
            continue
        for policy in card.policies:
            if policy.phase is Phase.PLAN and policy.effects and condition_holds(policy, known):
                text = str(policy.because)
                kinds = [effect.kind.value for effect in policy.effects if _complies(effect, known)]
                found += [Reason(card=card.id, policy=policy.id, effect=kind, text=text) for kind in kinds]
        for risk in card.risks:
            if risk.when is not None and scalar(risk.when, known) is True:
                found.append(Reason(card=card.id, policy=risk.id, effect="risk", text=_risk_text(risk)))
    return tuple(found)


def _complies(effect: Effect, row: Mapping[str, Any]) -> bool:
    if effect.kind is EffectKind.FORBID:
        return bool(effect.settings) and not selects_row(effect, row)
    return effect.kind is EffectKind.WARN or selects_row(effect, row)


def _risk_text(risk: Risk) -> str:
    fallback = f" Fallback: {', '.join(map(show_setting, risk.fallback))}." if risk.fallback else ""
    return f"{risk.text}{fallback}"


def show_setting(setting: Setting) -> str:
    """A setting of an effect as text: ``recompute = full`` or ``micro_batch = knobs.micro_batch * 2``."""
    name = setting.path.partition(".")[2]
    if setting.change is not None:
        return f"{name} = {setting.change.text}"
    return f"{name} = {' or '.join(map(show_value, setting.values))}"
