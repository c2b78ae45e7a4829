"""Card filter: what cards and the back end leave of a space, first of blocks, then of combinations of knobs, then of candidates."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from strategist.cards.deck import Deck
from strategist.cost.lower_bounds import LowerBounds
from strategist.errors import InputError
from strategist.expr.columns import Columns, Gathered
from strategist.expr.evaluate import Facts, Mask
from strategist.rules.policy_evaluation import PART_ROWS, Rejection, judge
from strategist.search.candidate_tables import Left, block_table, knob_table, table_of
from strategist.search.options import forced_options
from strategist.search.pruning import Families, Limits, families
from strategist.search.space import Block
from strategist.search.space_constraints import SpaceConstraints


@dataclass(frozen=True, kw_only=True)
class SearchCriteria:
    """What candidates are judged by.

    constraints: what narrows the space.
    limits: time and memory that a candidate must keep to.
    lower_bounds: of the memory and time of a table of families; None where nodes differ.
    """

    deck: Deck
    facts: Facts
    constraints: SpaceConstraints
    limits: Limits
    lower_bounds: Callable[[Columns], LowerBounds] | None


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """Blocks and combinations of knobs that are left of a space, each alone."""

    blocks: list[Block]
    knobs: Columns
    left: Left
    dropped: tuple[Rejection, ...]

    def families(self, criteria: SearchCriteria) -> Families | None:
        """The families of the candidates; None where there is no bound of them."""
        return (
            None
            if criteria.lower_bounds is None
            else families(self.blocks, self.knobs, self.left, criteria.lower_bounds, criteria.limits)
        )


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Candidates that the cards leave; ``narrowed`` is what they were put together from."""

    columns: Columns
    narrowed: Narrowed | None = None

    def could(self, criteria: SearchCriteria) -> Mask:
        """Those that could fit, by what their families take at least."""
        found = self.narrowed.families(criteria) if self.narrowed else None
        if found is None or not isinstance(self.columns.values, Gathered):
            return np.ones(self.columns.rows, dtype=np.bool_)
        (_, of), (_, places) = self.columns.values.sources
        return found.among(of, places)


def allowed_of(blocks: Sequence[Block], criteria: SearchCriteria, *, defaults: bool) -> tuple[Allowed, tuple[Rejection, ...], int]:
    """The candidates that the cards leave, and the rejections by policy: first what layouts and micro-batches alone decide, then
    what knobs alone decide, so that the rest stays small. Of that rest the back end refuses some, whose number comes last.

    ``defaults`` narrow early as well; where that leaves laws on whole candidates nothing, early passes are walked again by laws
    alone. Without them laws decide alone.
    """
    deck, facts, constraints = criteria.deck, criteria.facts, criteria.constraints
    for early_defaults in (True, False) if defaults else (False,):
        narrowed = narrowed_of(blocks, criteria, defaults=early_defaults)
        everything = table_of(narrowed.blocks, narrowed.knobs, narrowed.left)
        known = {**facts, **forced_options(constraints)}
        refused, out = left_out(constraints, known, everything)
        judgement = judge(deck, facts, everything, fixed=constraints.open, among=~out, defaults=defaults)
        if judgement.allowed.any():
            break
    if len(refused) and refused.all():
        row = everything.row(int(refused.argmax()))
        text = next(constraints.backend.broken_combinations({**known, **row}))
        raise InputError(f"--backend {constraints.backend.name}", f"cannot run {text}", "or plan without --backend")
    allowed = Allowed(columns=everything.take(judgement.allowed), narrowed=narrowed)
    return allowed, _merged((*narrowed.dropped, *judgement.dropped)), int(out.sum())


def narrowed_of(blocks: Sequence[Block], criteria: SearchCriteria, *, defaults: bool) -> Narrowed:
    """The blocks that some knobs could save, and the combinations of knobs that some layout could."""
    fixed = criteria.constraints.open
    kept, by_block = _narrowed_blocks(blocks, criteria.deck, criteria.facts, fixed, defaults)
    knobs, left, by_knobs = _narrowed_knobs(kept, criteria.deck, criteria.facts, fixed, defaults)
    kept = [block for block in kept if len(left[id(block.grid)])]
    return Narrowed(blocks=kept, knobs=knobs, left=left, dropped=(*by_block, *by_knobs))


def left_out(constraints: SpaceConstraints, known: Facts, everything: Columns) -> tuple[Mask, Mask]:
    """The candidates that the back end refuses; and these with those that change the trained model without being allowed."""
    refused, unasked = np.zeros((2, everything.rows), dtype=np.bool_)
    for place, part in everything.parts(PART_ROWS):
        refused[place] = constraints.backend.refused(known, part)
        unasked[place] = constraints.backend.unrequested_convergence(known, part, constraints.open)
    return refused, refused | unasked


def _narrowed_blocks(
    blocks: Sequence[Block], deck: Deck, facts: Facts, fixed: frozenset[str], defaults: bool
) -> tuple[list[Block], tuple[Rejection, ...]]:
    """The blocks without those that no knobs could save."""
    rows = np.array([block.rows for block in blocks])
    judgement = judge(deck, facts, block_table(blocks), fixed=fixed, weights=rows, defaults=defaults)
    return [block for block, allowed in zip(blocks, judgement.allowed, strict=True) if allowed], judgement.dropped


def _narrowed_knobs(
    blocks: Sequence[Block], deck: Deck, facts: Facts, fixed: frozenset[str], defaults: bool
) -> tuple[Columns, Left, tuple[Rejection, ...]]:
    """The combinations of knobs of the blocks, and where those lie that some layout could save; blocks share grids, so each is
    asked once."""
    grids = {id(block.grid): block.grid for block in blocks}
    knobs, places = knob_table(list(grids.values()))
    used = Counter(id(block.grid) for block in blocks)
    if not blocks:
        return knobs, places, ()
    weights = np.repeat([used[key] for key in places], [len(rows) for rows in places.values()])
    judgement = judge(deck, facts, knobs, fixed=fixed, weights=weights, defaults=defaults)
    left = {key: rows[judgement.allowed[rows]] for key, rows in places.items()}
    return knobs, left, judgement.dropped


def _merged(drops: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
    """One drop a policy, most first."""
    counts: dict[tuple[str, str, str], int] = {}
    for drop in drops:
        key = (drop.card, drop.policy, drop.because)
        counts[key] = counts.get(key, 0) + drop.rows
    merged = [Rejection(card=c, policy=p, because=b, rows=rows) for (c, p, b), rows in counts.items()]
    return tuple(sorted(merged, key=lambda drop: (-drop.rows, drop.card, drop.policy)))
