"""Tables of a space: one of its blocks, one of their combinations of knobs, and one of all candidates."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from strategist.contract.knobs import CHOICES
from strategist.contract.settings import AXIS_ORDER, SETTING_CHOICES, full_name
from strategist.expr.columns import CANDIDATE_NAMES, Array, Columns, Gathered, sources_of
from strategist.frozen import frozen
from strategist.search.blocks import Blocks, Space, grid_rows

_CATEGORIES = {full_name(name): SETTING_CHOICES[name] for name in (AXIS_ORDER, *CHOICES)}


def block_table(blocks: Blocks) -> Columns:
    """One row per block, with the columns shared by all its candidates, so that cards' conditions on these are evaluated once
    per block.
    """
    return Columns(values=blocks.columns)


class _JoinedGrids(Mapping[str, Array]):
    """Columns of several grids, concatenated; each column is made when it is first read."""

    def __init__(self, grids: Sequence[Mapping[str, Array]]) -> None:
        self._grids = grids
        self._names = grids[0].keys() if grids else CANDIDATE_NAMES
        self._joined: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        joined = self._joined.get(name)
        if joined is None:
            parts = [grid[name] for grid in self._grids]
            joined = self._joined[name] = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return joined

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


KnobRows = Sequence[Array]
"""Row numbers of the remaining combinations in the table of knobs, by number of the grid."""


@frozen
class CandidateSet:
    """Candidates: blocks, each with the combinations of knobs of its grid.

    knobs: the combinations of all grids, with the columns that do not depend on the layout.
    knob_rows: by grid, the row numbers of its combinations; no row is in two grids.
    """

    blocks: Blocks
    knobs: Columns
    knob_rows: KnobRows

    @cached_property
    def lengths(self) -> Array:
        """Number of combinations of each grid."""
        return np.array(list(map(len, self.knob_rows)), dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of candidates."""
        return int(self.lengths[self.blocks.grid].sum())

    def among(self, knob_rows: KnobRows, grid: Array) -> "CandidateSet":
        """The blocks with other grids, whose combinations are ``knob_rows``, without blocks whose grid has none."""
        knobs, ends = self.knobs.take(np.concatenate([*knob_rows, _NONE])), np.cumsum(list(map(len, knob_rows)))
        found = CandidateSet(blocks=self.blocks, knobs=knobs, knob_rows=_split(ends))
        kept = found.lengths[grid] > 0
        blocks = Blocks(counts=self.blocks.counts, grid=grid).among(kept)
        return replace(found, blocks=blocks)

    def tables(self, max_rows: int = sys.maxsize, among: Array | None = None) -> Iterator[Columns]:
        """Tables of the candidates of all blocks, or of those ``among`` them (their indices, ascending); one run of rows per block.
        Consecutive tables have at most ``max_rows`` rows, or are one block; all are gathered from the same sources. Without a block
        there is one empty table.
        """
        among = np.arange(len(self.blocks)) if among is None else among
        grid = self.blocks.grid[among]
        rows, first_rows = self.lengths[grid], (np.cumsum(self.lengths) - self.lengths)[grid]
        ends, runs = np.cumsum(rows), self.blocks.columns
        all_knob_rows = np.concatenate([*self.knob_rows, _NONE]).astype(np.int32)
        first = begin = 0
        while first < len(among) or not first:
            last = max(int(np.searchsorted(ends - begin, max_rows, side="right")), first + 1)
            part_rows, part_blocks = rows[first:last], among[first:last]
            starts = np.cumsum(part_rows) - part_rows
            knob_indices = np.repeat(first_rows[first:last] - starts, part_rows) + np.arange(part_rows.sum())
            places = np.repeat(part_blocks.astype(np.int32), part_rows)
            yield Columns(
                values=Gathered([(runs, places), (self.knobs.values, all_knob_rows[knob_indices])]),
                categories=_CATEGORIES,
                runs=Gathered([(runs, part_blocks)]),
                run_rows=part_rows,
            )
            first, begin = last, begin + int(part_rows.sum())


_NONE = np.zeros(0, dtype=np.int64)


def _split(ends: Array) -> KnobRows:
    """Consecutive row numbers, by grid."""
    return np.split(np.arange(sum(ends[-1:])), ends[:-1])


def candidate_set(space: Space) -> CandidateSet:
    """All candidates of a space."""
    ends = np.cumsum(list(map(grid_rows, space.grids)))
    knobs = Columns(values=_JoinedGrids(space.grids), categories=_CATEGORIES)
    return CandidateSet(blocks=space, knobs=knobs, knob_rows=_split(ends))


def candidate_table(space: Space) -> Columns:
    """Table of all candidates of a space. A column is gathered when it is first read."""
    return next(candidate_set(space).tables())


def knob_indices(table: Columns) -> Array:
    """Of each candidate of a table of a set, the row in the set's table of knobs."""
    return sources_of(table)[1][1]
