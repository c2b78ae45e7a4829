"""Tables of a space: one of its blocks, one of their combinations of knobs, and one of all candidates."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from strategist.contract.knobs import CHOICES
from strategist.contract.settings import AXIS_ORDER, SETTING_CHOICES, full_name
from strategist.expr.columns import CANDIDATE_NAMES, Array, Columns, Gathered
from strategist.search.space import BLOCK_COLUMNS, Block, grid_rows

_CATEGORIES = {full_name(name): SETTING_CHOICES[name] for name in (AXIS_ORDER, *CHOICES)}


def block_table(blocks: Sequence[Block]) -> Columns:
    """One row per block, with the columns shared by all its candidates, so that cards' conditions on these are evaluated once
    per block.
    """
    return Columns(values=_in_block(blocks))


class _Joined(Mapping[str, Array]):
    """Columns of several grids, concatenated; each column is made when it is first read."""

    def __init__(self, grids: Sequence[Mapping[str, Array]]) -> None:
        self._grids = grids
        self._names = grids[0].keys() if grids else CANDIDATE_NAMES
        self._made: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        made = self._made.get(name)
        if made is None:
            parts = [grid[name] for grid in self._grids]
            made = self._made[name] = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


Left = Mapping[int, Array]
"""By the id of a grid: row numbers of its remaining combinations in the table of knobs."""


def knob_table(grids: Sequence[Mapping[str, Array]]) -> tuple[Columns, Left]:
    """Table of the combinations of all grids, with the columns that do not depend on the layout; then the rows of each grid in
    it.
    """
    edges = np.cumsum([0, *map(grid_rows, grids)]).tolist()
    places = {id(grid): np.arange(begin, end) for grid, (begin, end) in zip(grids, pairwise(edges), strict=True)}
    return Columns(values=_Joined(grids), categories=_CATEGORIES), places


def candidate_table(blocks: Sequence[Block]) -> Columns:
    """Table of all candidates of the blocks."""
    grids = {id(block.grid): block.grid for block in blocks}
    return table_of(blocks, *knob_table(list(grids.values())))


def table_of(blocks: Sequence[Block], knobs: Columns, left: Left) -> Columns:
    """Table of the candidates of the blocks, restricted to the combinations of knobs that are ``left``; one run of rows per
    block. A column is gathered when it is first read.
    """
    begins = dict(zip(left, np.cumsum([0, *map(len, left.values())]).tolist(), strict=False))
    rows = np.array([len(left[id(block.grid)]) for block in blocks], dtype=np.int64)
    number = np.int32 if rows.sum() < 2**31 else np.int64  # row numbers take most of the memory of the largest tables
    before = np.array([begins[id(block.grid)] for block in blocks], dtype=np.int64) - (np.cumsum(rows) - rows)
    whole = np.concatenate([*left.values(), np.zeros(0, dtype=np.int64)]).astype(number)
    places = np.repeat(before.astype(number), rows)
    places += np.arange(len(places), dtype=number)
    runs = _in_block(blocks)
    values = Gathered([(runs, np.repeat(np.arange(len(rows), dtype=number), rows)), (knobs.values, whole[places])])
    return Columns(values=values, categories=_CATEGORIES, runs=runs, run_rows=rows)


def rows_at(blocks: Sequence[Block], knobs: Columns, of: Array, places: Array) -> Columns:
    """Table of some candidates: ``of`` are their block numbers, in ascending order; ``places`` the rows of their knobs."""
    rows, runs = np.bincount(of, minlength=len(blocks)), _in_block(blocks)
    values = Gathered([(runs, of), (knobs.values, places)])
    own = Gathered([(runs, np.flatnonzero(rows))])
    return Columns(values=values, categories=_CATEGORIES, runs=own, run_rows=rows[rows > 0])


def _in_block(blocks: Sequence[Block]) -> dict[str, Array]:
    counts = np.array([block.counts for block in blocks], dtype=np.int64).reshape(len(blocks), len(BLOCK_COLUMNS))
    return dict(zip(BLOCK_COLUMNS, np.ascontiguousarray(counts.T), strict=True))
