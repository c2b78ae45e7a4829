"""Card filter: applies cards and the back end's limits to a space: to blocks first, then to combinations of knobs, then to one
candidate for each class of both.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property, partial

import numpy as np

from strategist.cards.card import Card, Effect, Policy
from strategist.cards.deck import Deck
from strategist.contract.settings import full_name
from strategist.errors import InputError
from strategist.expr.columns import Array, Columns
from strategist.expr.evaluate import Facts, Mask, distinguishing_values
from strategist.frozen import frozen
from strategist.rules.backend import Backend
from strategist.rules.policy_evaluation import PART_ROWS, Rejection, judge, undecided
from strategist.search.blocks import BLOCK_COLUMNS, Space
from strategist.search.candidate_classes import candidate_classes, effect_columns, single_candidates
from strategist.search.candidate_tables import CandidateSet, block_table, candidate_set
from strategist.search.options import forced_options
from strategist.search.space_constraints import SpaceConstraints


@frozen
class SearchCriteria:
    """Criteria by which candidates are judged: cards, the facts of the situation, and what restricts the space."""

    deck: Deck
    facts: Facts
    constraints: SpaceConstraints

    @cached_property
    def known(self) -> Facts:
        """The facts, with options that have a single possible value."""
        return {**self.facts, **forced_options(self.constraints)}


@frozen
class Refusals:
    """Candidates that a back end does not run.

    judged: number of candidates about which it was asked.
    refused, excluded: of these, the number of those that it refuses; and of these and others that would change convergence without
        being allowed to.
    example: the first that it refuses, with facts and forced options.
    """

    judged: int
    refused: int
    excluded: int
    example: Facts

    def check(self, backend: Backend) -> None:
        """Raises an InputError if all are refused."""
        if 0 < self.judged == self.refused:
            text = next(backend.broken_combinations(self.example))
            raise InputError(f"--backend {backend.name}", f"cannot run {text}", "or ask which back ends can: plan --show backends")


@frozen
class Allowed:
    """The candidates that the cards allow and the back end runs, with the verdicts on all others.

    dropped: rejections by policy.
    """

    candidates: CandidateSet
    dropped: tuple[Rejection, ...]
    refusals: Refusals


def allowed_of(space: Space, criteria: SearchCriteria, *, defaults: bool) -> Allowed:
    """The allowed candidates, by one or two passes over the cards: those of the first pass that leaves any, else of the last.

    Policies that depend on layout and micro-batch only are applied first, then those on knobs only, then the others to one
    candidate of each class. Defaults narrow in the early passes as well; in a second pass the early passes apply only laws. Without
    ``defaults`` only laws narrow.
    """
    allowed = _allowed(space, criteria, defaults=defaults, early_defaults=defaults)
    return allowed if allowed.candidates.rows or not defaults else _allowed(space, criteria, defaults=True, early_defaults=False)


def _allowed(space: Space, criteria: SearchCriteria, *, defaults: bool, early_defaults: bool) -> Allowed:
    deck, fixed = criteria.deck, criteria.constraints.open
    apply = partial(judge, deck, criteria.facts, fixed=fixed)
    by_block = apply(block_table(space), weights=space.rows, defaults=early_defaults)
    narrowed = candidate_set(space.take(by_block.allowed))
    weights = np.repeat(np.bincount(narrowed.blocks.grid), narrowed.lengths)
    by_knobs = apply(narrowed.knobs, weights=weights, defaults=early_defaults)
    narrowed = narrowed.among([rows[by_knobs.allowed[rows]] for rows in narrowed.knob_rows], narrowed.blocks.grid)
    earlier = by_block, by_knobs

    if narrowed.rows > PART_ROWS:
        names = narrowed.knobs.names.union(BLOCK_COLUMNS)
        effects = undecided(deck, names, fixed, earlier, defaults=defaults)
        classes = candidate_classes(narrowed, *_distinguishing_columns(narrowed, tuple(effects), criteria))
    else:  # so few are judged in less time than their classes are found
        classes = single_candidates(narrowed)
    excluded, refusals = _refusals(criteria, classes.table, classes.weights)
    verdict = apply(classes.table, weights=classes.weights, among=~excluded, defaults=defaults, earlier=earlier)
    return Allowed(
        candidates=classes.among(verdict.allowed),
        dropped=_merged_rejections([drop for judgement in (*earlier, verdict) for drop in judgement.dropped]),
        refusals=refusals,
    )


def _distinguishing_columns(
    candidates: CandidateSet, effects: Sequence[tuple[Card, Policy, Effect]], criteria: SearchCriteria
) -> tuple[Sequence[Array], Sequence[Array]]:
    """Columns of the blocks, and of the combinations of knobs, such that candidates with equal values of all get the same verdicts
    of these effects and of the back end.
    """
    blocks, knobs, backend = block_table(candidates.blocks), candidates.knobs, criteria.constraints.backend
    conditions = [refusal.when for refusal in backend.refuses]
    named = {full_name(setting) for setting in backend.by_itself}.union(*(each.names for each in conditions))
    return (
        [
            *effect_columns(blocks, effects, criteria.facts, knobs.names),
            *distinguishing_values(conditions, criteria.known, blocks, knobs.names),
        ],
        [
            *effect_columns(knobs, effects, criteria.facts, blocks.names),
            *(knobs.values[name] for name in sorted(named & knobs.names)),
        ],
    )


def _refusals(criteria: SearchCriteria, table: Columns, weights: Array) -> tuple[Mask, Refusals]:
    """Mask of the rows that the back end excludes, and their counts; a row stands for ``weights`` candidates."""
    backend = criteria.constraints.backend
    refused = backend.refused(criteria.known, table)
    excluded = refused | backend.unrequested_convergence(criteria.known, table, criteria.constraints.open)
    counts = {"judged": weights, "refused": weights[refused], "excluded": weights[excluded]}
    example = {**criteria.known, **table.row(int(refused.argmax()))} if refused.any() else criteria.known
    return excluded, Refusals(**{name: int(column.sum()) for name, column in counts.items()}, example=example)


def _merged_rejections(drops: Iterable[Rejection]) -> tuple[Rejection, ...]:
    """Rejections added up by policy, largest first."""
    counts: dict[tuple[str, str, str], int] = {}
    for drop in drops:
        key = (drop.card, drop.policy, drop.because)
        counts[key] = counts.get(key, 0) + drop.rows
    merged = [Rejection(card=c, policy=p, because=b, rows=rows) for (c, p, b), rows in counts.items()]
    return tuple(sorted(merged, key=lambda drop: (-drop.rows, drop.card, drop.policy)))
