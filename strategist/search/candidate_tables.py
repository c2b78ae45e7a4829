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
    """Table of all candidates of the blocks. A column is gathered when it is first read."""
    return next(table_parts(blocks, *knob_table(blocks.grids), np.arange(len(blocks)), blocks.candidates))


def table_parts(blocks: Space, knobs: Columns, knob_rows: KnobRows, among: Array, max_rows: int) -> Iterator[Columns]:
    """Tables of the candidates of some blocks, restricted to the combinations of knobs that are ``knob_rows``; one run of rows per
    block. Consecutive tables have at most ``max_rows`` rows, or are one block; all are gathered from the same sources.

    Args:
        among: indices of the blocks, ascending. Without any there is one empty table.
    """
    lengths = np.array(list(map(len, knob_rows)), dtype=np.int64)
    grid = blocks.grid[among]
    rows, first_rows = lengths[grid], (np.cumsum(lengths) - lengths)[grid]
    ends, runs = np.cumsum(rows), blocks.columns
    all_knob_rows = np.concatenate([*knob_rows, np.zeros(0, dtype=np.int64)]).astype(np.int32)
    first = begin = 0
    while first < len(among) or not first:
        last = max(int(np.searchsorted(ends, begin + max_rows, side="right")), first + 1)
        part_rows, part_blocks = rows[first:last], among[first:last]
        starts = np.cumsum(part_rows) - part_rows
        knob_indices = np.repeat(first_rows[first:last] - starts, part_rows) + np.arange(part_rows.sum())
        places = np.repeat(part_blocks.astype(np.int32), part_rows)
        yield Columns(
            values=Gathered([(runs, places), (knobs.values, all_knob_rows[knob_indices])]),
            categories=_CATEGORIES,
            runs=Gathered([(runs, part_blocks)]),
            run_rows=part_rows,
        )
        first, begin = last, begin + int(part_rows.sum())
