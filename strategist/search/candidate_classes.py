"""Classes of blocks and of combinations of knobs: all conditions have equal values within a class, so one member is judged."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from strategist.cards.card import Card, Effect, Policy
from strategist.expr.check import Expression
from strategist.expr.columns import Array, Columns
from strategist.expr.evaluate import Facts, distinguishing_values
from strategist.frozen import frozen
from strategist.rules.policy_matching import matches
from strategist.search.candidate_tables import CandidateSet, knob_indices

MAX_NUMBER, MAX_KINDS = 2**62, 2**12
"""Largest number of a combination of values, and most values of one column that are numbered without sorting."""


@frozen
class Classes:
    """The class of each row of a table, and the first row of each class; classes are numbered in the order of these."""

    of: Array
    first: Array

    @property
    def sizes(self) -> Array:
        """Number of rows of each class."""
        return np.bincount(self.of, minlength=len(self.first))


def classes_of(grid: Array, columns: Iterable[Array]) -> Classes:
    """Rows of a class have the same ``grid``, and equal values of all ``columns``."""
    number, numbers = grid.astype(np.int64), int(grid.max(initial=0)) + 1
    for column in columns:
        codes, kinds = _coded(column)
        if numbers * kinds > MAX_NUMBER:
            _, number = np.unique(number, return_inverse=True)
            numbers = int(number.max(initial=0)) + 1
        if kinds > 1:
            number, numbers = number * kinds + codes, numbers * kinds
    _, first, same = np.unique(number, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Classes(of=place[same], first=first[order])


def _coded(column: Array) -> tuple[Array, int]:
    """Numbers from 0 on that are equal where the column is, and how many there may be. Numbers of a small range need no sorting."""
    if column.dtype.kind != "f" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < MAX_KINDS:
            return column.astype(np.int64) - low, high - low + 1
    kinds, codes = np.unique(column, return_inverse=True)
    return codes, len(kinds)


@frozen
class CandidateClasses:
    """Classes of the blocks of a set of candidates, and of its combinations of knobs.

    table: one candidate for each class of blocks and of knobs, the first; one run of rows for each class of blocks.
    """

    candidates: CandidateSet
    blocks: Classes
    knobs: Classes

    @cached_property
    def table(self) -> Columns:
        return next(self._firsts.tables(among=self.blocks.first))

    @cached_property
    def _firsts(self) -> CandidateSet:
        """The candidates with the first combination of each class of knobs, which stand in order."""
        first, rows = self.knobs.first, self.candidates.knob_rows
        ends = np.searchsorted(first, np.cumsum(self.candidates.lengths))
        return replace(self.candidates, knob_rows=np.split(first, ends[:-1]) if len(rows) else [])

    @property
    def weights(self) -> Array:
        """Number of candidates that each row of the table represents."""
        runs = self._firsts.lengths[self.candidates.blocks.grid[self.blocks.first]]
        return np.repeat(self.blocks.sizes, runs) * self.knobs.sizes[self.knobs.of[knob_indices(self.table)]]

    def among(self, mask: Array) -> CandidateSet:
        """The candidates of some rows of the table; their blocks have their classes in place of grids."""
        grids = self.candidates.blocks.grid[self.blocks.first]
        lengths, before = self._firsts.lengths, np.cumsum(self._firsts.lengths) - self._firsts.lengths
        ends = np.cumsum(lengths[grids])
        knob_rows = self.candidates.knob_rows
        kept = [
            knob_rows[grid][mask[end - lengths[grid] : end][self.knobs.of[knob_rows[grid]] - before[grid]]]
            for grid, end in zip(grids.tolist(), ends.tolist(), strict=True)
        ]
        return self.candidates.among(kept, self.blocks.of)


def candidate_classes(candidates: CandidateSet, block_columns: Sequence[Array], knob_columns: Sequence[Array]) -> CandidateClasses:
    """The classes of candidates whose blocks, and whose combinations of knobs, have equal values of these columns."""
    grid = np.repeat(np.arange(len(candidates.lengths)), candidates.lengths)
    of_blocks = classes_of(candidates.blocks.grid, block_columns)
    return CandidateClasses(candidates=candidates, blocks=of_blocks, knobs=classes_of(grid, knob_columns))


def single_candidates(candidates: CandidateSet) -> CandidateClasses:
    """Classes with one block, and with one combination of knobs, each."""
    blocks, knobs = np.arange(len(candidates.blocks)), np.arange(candidates.knobs.rows)
    return CandidateClasses(candidates=candidates, blocks=Classes(of=blocks, first=blocks), knobs=Classes(of=knobs, first=knobs))


def effect_columns(
    table: Columns, effects: Sequence[tuple[Card, Policy, Effect]], facts: Facts, others: frozenset[str]
) -> Sequence[Array]:
    """Columns of values that determine where the effects act and what they select, given the columns ``others`` of another table.

    Two rows with equal values in all columns get equal verdicts of each effect for any values of ``others``.
    """
    conditions: dict[str, Expression] = {}  # by their text: hashing a tree takes as long as evaluating it
    for card, policy, _ in effects:
        conditions |= {each.text: each for each in (*(one.when for one in card.preconditions), policy.when) if each}
    settings = dict.fromkeys(setting for *_, effect in effects for setting in effect.settings if setting.path in table.names)
    values = distinguishing_values(conditions.values(), facts, table, others)
    return [*values, *(np.asarray(matches(setting, table)) for setting in settings)]
