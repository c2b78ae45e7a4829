"""Card filter: applies cards and the back end's limits to a space: to blocks first, then to combinations of knobs, then to
candidates.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from strategist.cards.deck import Deck
from strategist.cost.lower_bounds import LowerBounds
from strategist.errors import InputError
from strategist.expr.columns import Columns
from strategist.expr.evaluate import Facts, Mask
from strategist.rules.policy_evaluation import PART_ROWS, JudgedParts, Judgement, Number, Rejection, judge
from strategist.search.blocks import Space
from strategist.search.candidate_tables import KnobRows, block_table, knob_table, table_parts
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

    @property
    def candidates(self) -> Iterator[Columns]:
        """The remaining candidates, as tables of bounded size."""
        return table_parts(self.blocks, self.knobs, self.knob_rows, np.arange(len(self.blocks)), PART_ROWS)

    def families(self, criteria: SearchCriteria) -> Families | None:
        """The families of the remaining candidates; None if there are no lower bounds."""
        return (
            None
            if criteria.lower_bounds is None
            else families(self.blocks, self.knobs, self.knob_rows, criteria.lower_bounds, criteria.limits)
        )


class AllowedCandidates:
    """The candidates that the cards allow, as consecutive tables of bounded size, some of them empty; made anew by each iteration.

    Args:
        defaults: whether the cards' defaults narrow, too.
        among: families to which the candidates are restricted.

    After an iteration:
        dropped: rejections by policy.
        gave_way: defaults that were skipped.
        rows: number of candidates that the tables had.
        refused, excluded: number of candidates that the back end refuses; of these and of those that would change convergence
            without being allowed to.
    """

    def __init__(self, narrowed: Narrowed, criteria: SearchCriteria, *, defaults: bool, among: Families | None = None) -> None:
        self.narrowed, self._criteria, self._defaults, self.among = narrowed, criteria, defaults, among
        self._known = {**criteria.facts, **forced_options(criteria.constraints)}
        self.dropped, self.gave_way = narrowed.dropped, narrowed.gave_way
        self.rows = self.excluded = self.refused = self._judged_rows = 0
        self._refused_row: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Columns]:
        criteria, self.rows = self._criteria, 0
        judged = JudgedParts(
            criteria.deck, criteria.facts, self._parts, criteria.constraints.open, self.narrowed.gave_way, defaults=self._defaults
        )
        for part in judged:
            self.rows += part.rows
            yield part
        self.gave_way, self.dropped = judged.gave_way, _merged_rejections((*self.narrowed.dropped, *judged.dropped))

    def check_refused(self) -> None:
        """Raises an InputError if the back end refuses all candidates of the last iteration."""
        backend = self._criteria.constraints.backend
        if 0 < self._judged_rows == self.refused:
            text = next(backend.broken_combinations({**self._known, **self._refused_row}))
            raise InputError(f"--backend {backend.name}", f"cannot run {text}", "or plan without --backend")

    def _parts(self) -> Iterator[tuple[Columns, Mask]]:
        """The candidates, with a mask of those that are not excluded."""
        self.excluded = self.refused = self._judged_rows = 0
        backend, is_open = self._criteria.constraints.backend, self._criteria.constraints.open
        for part in self.narrowed.candidates if self.among is None else self.among.candidates:
            refused = backend.refused(self._known, part)
            excluded = refused | backend.unrequested_convergence(self._known, part, is_open)
            if not self.refused and refused.any():
                self._refused_row = part.row(int(refused.argmax()))
            self._judged_rows += part.rows
            self.refused += int(np.count_nonzero(refused))
            self.excluded += int(np.count_nonzero(excluded))
            yield part, ~excluded


def allowed_of(blocks: Space, criteria: SearchCriteria, *, defaults: bool) -> Iterator[AllowedCandidates]:
    """Allowed candidates of one or two passes: the first that leaves some counts, or the last.

    Policies that depend on layout and micro-batch only are applied first, then those on knobs only, so that few whole candidates
    are judged. Defaults narrow in these early passes as well; in a second pass the early passes apply only laws. Without
    ``defaults`` only laws narrow.
    """
    for early_defaults in (True, False) if defaults else (False,):
        yield AllowedCandidates(narrowed_of(blocks, criteria, defaults=early_defaults), criteria, defaults=defaults)


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
