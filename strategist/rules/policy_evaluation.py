"""Evaluates policies over candidates: allowed candidates, rejections by policy, preferences and reasons."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
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
from strategist.rules.policy_matching import Where, acts, acts_for, holds, holds_for, selects, selects_row


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Candidates that a policy was the first to drop."""

    card: str
    policy: str
    because: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a deck forbids of a table: the rows allowed, the number of rejections by policy, and whether some default would have
    left nothing."""

    allowed: Mask
    dropped: tuple[Rejection, ...]
    gave_way: bool


@dataclass(frozen=True)
class _Rule:
    """One effect of one policy with the rows for which its card's preconditions hold; ``number`` is its place in the deck."""

    number: tuple[int, int]
    card: Card
    policy: Policy
    effect: Effect
    where: Where


SHRINK_ROWS = 2048
"""A table of more rows loses those that no longer count as soon as they are half of it."""

PART_ROWS = 2**17
"""Rows of a table that are judged at a time, so that columns stay in the processor's cache and memory stays bounded."""


class _AllowedRows:
    """The rows of a table that are still allowed. Of a large table the others are left out as they get many."""

    def __init__(self, columns: Columns, weights: NDArray[np.int64] | None, among: Mask) -> None:
        self.columns, self.weights, self.allowed = columns, weights, among
        self.rows, self.places = columns.rows, np.arange(columns.rows)

    @property
    def any(self) -> bool:
        """Whether a row is still allowed."""
        return bool(self.allowed.any())

    def keep(self, kept: Where) -> int:
        """Leaves the rows that a rule keeps. Returns the weight of those that it is the first to drop."""
        if kept is True:
            return 0
        remaining = self.allowed & kept
        dropped = self.allowed & ~remaining
        self.allowed = remaining
        return int(np.count_nonzero(dropped) if self.weights is None else self.weights[dropped].sum())

    def shrink(self) -> None:
        """Only between two cards: where one holds is known for the table as it was."""
        if self.columns.rows > SHRINK_ROWS and 2 * np.count_nonzero(self.allowed) < self.columns.rows:
            self.refresh()

    def refresh(self) -> None:
        """Leaves out the rows that are no longer allowed, and forgets the columns that were made."""
        self.columns = self.columns.among(self.allowed)
        self.weights = None if self.weights is None else self.weights[self.allowed]
        self.places = self.places[self.allowed]
        self.allowed = np.ones(len(self.places), dtype=np.bool_)

    def mask(self) -> Mask:
        """Of the whole table, the rows that are still allowed."""
        found = np.zeros(self.rows, dtype=np.bool_)
        found[self.places[self.allowed]] = True
        return found


class _Tally:
    """The weight of the rows that each rule was the first to drop."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], tuple[_Rule, int]] = {}

    def add(self, rule: _Rule, rows: int) -> None:
        """Counts rows of one part of a table."""
        if rows:
            _, before = self._rows.get(rule.number, (rule, 0))
            self._rows[rule.number] = rule, before + rows

    @property
    def drops(self) -> tuple[Rejection, ...]:
        """One a rule, in the order of the deck."""
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
) -> Judgement:
    """Applies the narrowing plan-phase policies of the deck; laws alone, without ``defaults``.

    Laws (require, forbid) come first, in card order; then defaults (set), of which one that would leave nothing gives way.
    ``fixed`` names settings, bare or in full, over which defaults have no say: what the user fixed, or allowed to
    change. ``weights`` count for the rows, where a row stands for several candidates; ``among`` are those that count at all.
    """
    among = np.ones(columns.rows, dtype=np.bool_) if among is None else among
    tally, parts = _Tally(), []
    for place, part in columns.parts(PART_ROWS):
        alive = _AllowedRows(part, None if weights is None else weights[place], among[place])
        for rule in _rules(deck, facts, alive, HARD):
            tally.add(rule, alive.keep(_kept(rule, facts, alive.columns)))
        if part is not columns:
            alive.refresh()
        parts.append(alive)
    masks, by_defaults, gave_way = [alive.mask() for alive in parts], _Tally(), False
    if defaults:
        free = frozenset(name.name for name in map(setting_named, fixed) if name)
        masks, by_defaults, gave_way = _with_defaults(deck, facts, parts, free)
    return Judgement(allowed=np.concatenate(masks), dropped=(*tally.drops, *by_defaults.drops), gave_way=gave_way)


def _with_defaults(
    deck: Deck, facts: Facts, parts: Sequence[_AllowedRows], free: frozenset[str]
) -> tuple[list[Mask], _Tally, bool]:
    """What defaults leave of each part of a table, and whether one of them gave way. That one leaves nothing of a table shows once
    all parts were narrowed: then they are narrowed again without it."""
    giving_way: set[tuple[int, int]] = set()
    alone = False
    while True:
        tally, masks, after = _Tally(), [], []
        for part in parts:
            alive, left = copy(part), {}
            if len(parts) > 1:
                alive.refresh()
            for rule in _rules(deck, facts, alive, (EffectKind.SET,), free):
                kept = _kept(rule, facts, alive.columns)
                empties = len(parts) == 1 and alive.any and not np.any(alive.allowed & kept)
                alone = alone or empties
                if rule.number not in giving_way and not empties:
                    tally.add(rule, alive.keep(kept))
                    left[rule.number] = alive.any
            masks.append(alive.mask())
            after.append(left)
        number = _leaving_nothing([part.any for part in parts], after)
        if number is None:
            return masks, tally, alone or bool(giving_way)
        giving_way.add(number)


def _leaving_nothing(before: Sequence[bool], after: Sequence[Mapping[tuple[int, int], bool]]) -> tuple[int, int] | None:
    """The first rule that leaves no part a row; ``after`` says of each part what the rules that act on it leave."""
    now = list(before)
    for number in sorted({number for left in after for number in left}):
        later = [left.get(number, state) for left, state in zip(after, now, strict=True)]
        if any(now) and not any(later):
            return number
        now = later
    return None


def _rules(
    deck: Deck, facts: Facts, alive: _AllowedRows, kinds: tuple[EffectKind, ...], free: frozenset[str] = frozenset()
) -> Iterator[_Rule]:
    """The effects of these kinds that can act on the table, less settings that are ``free``."""
    for card, placed in deck.acting_on(alive.columns.names, kinds, free):
        alive.shrink()
        where = holds(card, facts, alive.columns)
        if where is not False:
            yield from (_Rule(number, card, policy, effect, where) for number, policy, effect in placed)


def _kept(rule: _Rule, facts: Facts, columns: Columns) -> Where:
    """The candidates that a narrowing effect leaves."""
    where = rule.where & acts(rule.policy, facts, columns)
    if not np.any(where):
        return True
    selected = selects(rule.effect, columns)
    return np.logical_not(where & selected) if rule.effect.kind is EffectKind.FORBID else np.logical_not(where) | selected


def preferences(deck: Deck, facts: Facts, columns: Columns) -> NDArray[np.float64]:
    """Less one for each preference of the deck that concerns a candidate and that it misses.

    A card concerns the candidates for which its preconditions hold, ``prefer: {k: v}`` those of them for which its condition does;
    of ``prefer: candidate`` the condition is what is preferred. So what does without a technique loses nothing by advice on how
    to use it well.
    """
    score = np.zeros(columns.rows, dtype=np.float64)
    everything = _AllowedRows(columns, None, np.ones(columns.rows, dtype=np.bool_))
    for rule in _rules(deck, facts, everything, (EffectKind.PREFER,)):
        acting = acts(rule.policy, facts, columns)
        met = np.logical_and(acting, selects(rule.effect, columns))
        concerned = rule.where & acting if rule.effect.settings else rule.where
        score -= concerned & ~met
    return score


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
