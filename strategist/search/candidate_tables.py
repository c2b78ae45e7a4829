"""Tables of a space: one of its blocks, one of their combinations of knobs, and one of all candidates."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from strategist.contract.knobs import CHOICES
from strategist.contract.settings import AXIS_ORDER, SETTING_CHOICES, full_name
from strategist.expr.columns import CANDIDATE_NAMES, Array, Columns, Gathered
from strategist.search.blocks import Space, grid_rows

_CATEGORIES = {full_name(name): SETTING_CHOICES[name] for name in (AXIS_ORDER, *CHOICES)}


def block_table(blocks: Space) -> Columns:
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


def knob_table(grids: Sequence[Mapping[str, Array]]) -> tuple[Columns, KnobRows]:
    """Table of the combinations of all grids, with the columns that do not depend on the layout; then the rows of each grid in
    it.
    """
    grid_ends = np.cumsum(list(map(grid_rows, grids)))
    return Columns(values=_JoinedGrids(grids), categories=_CATEGORIES), np.split(np.arange(sum(grid_ends[-1:])), grid_ends[:-1])


def candidate_table(blocks: Space) -> Columns:
    """Table of all candidates of the blocks."""
    return table_of(blocks, *knob_table(blocks.grids))


def table_of(blocks: Space, knobs: Columns, knob_rows: KnobRows) -> Columns:
    """Table of the candidates of the blocks, restricted to the combinations of knobs that are ``knob_rows``; one run of rows per
    block. A column is gathered when it is first read.
    """
    lengths = np.array(list(map(len, knob_rows)), dtype=np.int64)
    rows, first_rows = lengths[blocks.grid], (np.cumsum(lengths) - lengths)[blocks.grid]
    index_type = np.int32 if rows.sum() < 2**31 else np.int64  # row numbers take most of the memory of the largest tables
    knob_indices = np.repeat((first_rows - (np.cumsum(rows) - rows)).astype(index_type), rows)
    knob_indices += np.arange(len(knob_indices), dtype=index_type)
    all_knob_rows = np.concatenate([*knob_rows, np.zeros(0, dtype=np.int64)]).astype(index_type)
    runs = blocks.columns
    values = Gathered(
        [(runs, np.repeat(np.arange(len(rows), dtype=index_type), rows)), (knobs.values, all_knob_rows[knob_indices])]
    )
    return Columns(values=values, categories=_CATEGORIES, runs=runs, run_rows=rows)


def rows_at(blocks: Space, knobs: Columns, block_indices: Array, knob_indices: Array) -> Columns:
    """Table of some candidates: ``block_indices`` are their blocks in ascending order, ``knob_indices`` their knob rows."""
    rows, runs = np.bincount(block_indices, minlength=len(blocks)), blocks.columns
    values = Gathered([(runs, block_indices), (knobs.values, knob_indices)])
    nonempty_blocks = Gathered([(runs, np.flatnonzero(rows))])
    return Columns(values=values, categories=_CATEGORIES, runs=nonempty_blocks, run_rows=rows[rows > 0])
