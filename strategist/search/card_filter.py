"""Card filter: applies cards and the back end's limits to a space: to blocks first, then to combinations of knobs, then to
candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strategist.cards.deck import Deck
from strategist.cost.lower_bounds import LowerBounds
from strategist.errors import InputError
from strategist.expr.columns import Columns, Gathered
from strategist.expr.evaluate import Facts, Mask
from strategist.rules.policy_evaluation import PART_ROWS, Judgement, Number, Rejection, judge
from strategist.search.blocks import Space
from strategist.search.candidate_tables import KnobRows, block_table, knob_table, table_of
from strategist.search.options import forced_options
from strategist.search.pruning import Families, Limits, families
from strategist.search.space_constraints import SpaceConstraints


@dataclass(frozen=True, kw_only=True)
class SearchCriteria:
    """Criteria by which candidates are judged.

    constraints: what restricts the space.
    limits: time and memory that a candidate must keep to.
    lower_bounds: memory and time bounds of a table of families; None if the nodes of the cluster differ.
    """

    deck: Deck
    facts: Facts
    constraints: SpaceConstraints
    limits: Limits
    lower_bounds: Callable[[Columns], LowerBounds] | None


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """Blocks, and combinations of knobs, that remain after the cards were applied to each of the two separately.

    gave_way: defaults that were skipped, because no block, or no combination of knobs, complies. They are skipped for all
        candidates and for any part of these, too.
    """

    blocks: Space
    knobs: Columns
    knob_rows: KnobRows
    dropped: tuple[Rejection, ...]
    gave_way: frozenset[Number]

    def families(self, criteria: SearchCriteria) -> Families | None:
        """The families of the remaining candidates; None if there are no lower bounds."""
        return (
            None
            if criteria.lower_bounds is None
            else families(self.blocks, self.knobs, self.knob_rows, criteria.lower_bounds, criteria.limits)
        )


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Candidates that the cards allow; ``narrowed`` are the blocks and knobs that they combine."""

    columns: Columns
    narrowed: Narrowed | None = None

    def could(self, criteria: SearchCriteria) -> Mask:
        """Mask of the candidates that could fit by the lower bound of their family."""
        found = self.narrowed.families(criteria) if self.narrowed else None
        if found is None or not isinstance(self.columns.values, Gathered):
            return np.ones(self.columns.rows, dtype=np.bool_)
        (_, block_indices), (_, knob_indices) = self.columns.values.sources
        return found.among(block_indices, knob_indices)


def allowed_of(blocks: Space, criteria: SearchCriteria, *, defaults: bool) -> tuple[Allowed, tuple[Rejection, ...], int]:
    """Candidates that the cards allow, rejections by policy, and the number of candidates that the back end refuses.

    Policies that depend on layout and micro-batch only are applied first, then those on knobs only, so that the table of whole
    candidates stays small.

    Args:
        defaults: whether the cards' defaults narrow, too. They narrow in the early passes as well; if no candidate is left then,
            the early passes are repeated with laws only. If False, only laws narrow.
    """
    deck, facts, constraints = criteria.deck, criteria.facts, criteria.constraints
    for early_defaults in (True, False) if defaults else (False,):
        narrowed = narrowed_of(blocks, criteria, defaults=early_defaults)
        all_candidates = table_of(narrowed.blocks, narrowed.knobs, narrowed.knob_rows)
        known_facts = {**facts, **forced_options(constraints)}
        refused, excluded = left_out(constraints, known_facts, all_candidates)
        judgement = judge(deck, facts, all_candidates, fixed=constraints.open, among=~excluded, defaults=defaults)
        if judgement.allowed.any():
            break
    if len(refused) and refused.all():
        row = all_candidates.row(int(refused.argmax()))
        text = next(constraints.backend.broken_combinations({**known_facts, **row}))
        raise InputError(f"--backend {constraints.backend.name}", f"cannot run {text}", "or plan without --backend")
    allowed = Allowed(columns=all_candidates.take(judgement.allowed), narrowed=narrowed)
    return allowed, _merged_rejections((*narrowed.dropped, *judgement.dropped)), int(excluded.sum())


def narrowed_of(blocks: Space, criteria: SearchCriteria, *, defaults: bool) -> Narrowed:
    """Blocks for which some combination of knobs may be allowed, and combinations that may be allowed in some layout."""
    fixed = criteria.constraints.open
    allowed_blocks, by_block = _narrowed_blocks(blocks, criteria.deck, criteria.facts, fixed, defaults)
    knobs, knob_rows, by_knobs = _narrowed_knobs(allowed_blocks, criteria.deck, criteria.facts, fixed, defaults)
    has_rows = np.array(list(map(len, knob_rows)), dtype=np.int64) > 0
    knob_rows = [rows for rows in knob_rows if len(rows)]
    return Narrowed(
        blocks=allowed_blocks.take(has_rows[allowed_blocks.grid]),
        knobs=knobs,
        knob_rows=knob_rows,
        dropped=(*by_block.dropped, *by_knobs.dropped),
        gave_way=by_block.gave_way | by_knobs.gave_way,
    )


def left_out(constraints: SpaceConstraints, known: Facts, all_candidates: Columns) -> tuple[Mask, Mask]:
    """Mask of the candidates that the back end refuses, and the same mask plus candidates that would change convergence without
    being allowed to.
    """
    refused, unrequested = np.zeros((2, all_candidates.rows), dtype=np.bool_)
    for rows, part in all_candidates.parts(PART_ROWS):
        refused[rows] = constraints.backend.refused(known, part)
        unrequested[rows] = constraints.backend.unrequested_convergence(known, part, constraints.open)
    return refused, refused | unrequested


def _narrowed_blocks(blocks: Space, deck: Deck, facts: Facts, fixed: frozenset[str], defaults: bool) -> tuple[Space, Judgement]:
    """Blocks without those that cards reject whatever the knobs."""
    judgement = judge(deck, facts, block_table(blocks), fixed=fixed, weights=blocks.rows, defaults=defaults)
    return blocks.take(judgement.allowed), judgement


def _narrowed_knobs(
    blocks: Space, deck: Deck, facts: Facts, fixed: frozenset[str], defaults: bool
) -> tuple[Columns, KnobRows, Judgement]:
    """The table of knobs of the blocks, the rows of each grid that cards may allow in some layout, and their judgement. A grid
    shared by several blocks is judged once.
    """
    knobs, knob_rows = knob_table(blocks.grids)
    weights = np.repeat(np.bincount(blocks.grid), list(map(len, knob_rows)))
    judgement = judge(deck, facts, knobs, fixed=fixed, weights=weights, defaults=defaults)
    return knobs, [rows[judgement.allowed[rows]] for rows in knob_rows], judgement


def _merged_rejections(drops: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
    """Rejections added up by policy, largest first."""
    counts: dict[tuple[str, str, str], int] = {}
    for drop in drops:
        key = (drop.card, drop.policy, drop.because)
        counts[key] = counts.get(key, 0) + drop.rows
    merged = [Rejection(card=c, policy=p, because=b, rows=rows) for (c, p, b), rows in counts.items()]
    return tuple(sorted(merged, key=lambda drop: (-drop.rows, drop.card, drop.policy)))
