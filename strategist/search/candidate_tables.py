"""Tables of the candidates of a space: of its blocks, of their combinations of knobs, and of all candidates."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from strategist.contract.knobs import CHOICES
from strategist.contract.settings import AXIS_ORDER, SETTING_CHOICES, full_name
from strategist.expr.columns import CANDIDATE_NAMES, Array, Columns, Gathered
from strategist.search.space import IN_BLOCK, Block, grid_rows

_CATEGORIES = {full_name(name): SETTING_CHOICES[name] for name in (AXIS_ORDER, *CHOICES)}


def block_table(blocks: Sequence[Block]) -> Columns:
    """One row a block, with the columns that are equal in all its candidates: what cards say of those can be asked first."""
    return Columns(values=_in_block(blocks))


class _Joined(Mapping[str, Array]):
    """Columns of grids, one grid after the other; each is made when it is first read."""

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
"""By the id of a grid, the places of its combinations in a table of knobs."""


def knob_table(grids: Sequence[Mapping[str, Array]]) -> tuple[Columns, Left]:
    """The combinations of the grids, one after the other, with the columns that a layout has no part in; and where each lies."""
    edges = np.cumsum([0, *map(grid_rows, grids)]).tolist()
    places = {id(grid): np.arange(begin, end) for grid, (begin, end) in zip(grids, pairwise(edges), strict=True)}
    return Columns(values=_Joined(grids), categories=_CATEGORIES), places


def candidate_table(blocks: Sequence[Block]) -> Columns:
    """Every candidate of the blocks."""
    grids = {id(block.grid): block.grid for block in blocks}
    return table_of(blocks, *knob_table(list(grids.values())))


def table_of(blocks: Sequence[Block], knobs: Columns, left: Left) -> Columns:
    """The candidates of the blocks with the combinations of knobs that are ``left``, in runs of a block each. Columns stay where
    they are until they are read."""
    begins = dict(zip(left, np.cumsum([0, *map(len, left.values())]).tolist(), strict=False))
    rows = np.array([len(left[id(block.grid)]) for block in blocks], dtype=np.int64)
    number = np.int32 if rows.sum() < 2**31 else np.int64  # numbers of rows are most of what the largest tables take
    before = np.array([begins[id(block.grid)] for block in blocks], dtype=np.int64) - (np.cumsum(rows) - rows)
    whole = np.concatenate([*left.values(), np.zeros(0, dtype=np.int64)]).astype(number)
    places = np.repeat(before.astype(number), rows)
    places += np.arange(len(places), dtype=number)
    runs = _in_block(blocks)
    values = Gathered([(runs, np.repeat(np.arange(len(rows), dtype=number), rows)), (knobs.values, whole[places])])
    return Columns(values=values, categories=_CATEGORIES, runs=runs, run_rows=rows)


def rows_at(blocks: Sequence[Block], knobs: Columns, of: Array, places: Array) -> Columns:
    """Some candidates of the blocks: the numbers of their blocks, which grow, and the places of their combinations of knobs."""
    rows, runs = np.bincount(of, minlength=len(blocks)), _in_block(blocks)
    values = Gathered([(runs, of), (knobs.values, places)])
    own = Gathered([(runs, np.flatnonzero(rows))])
    return Columns(values=values, categories=_CATEGORIES, runs=own, run_rows=rows[rows > 0])


def _in_block(blocks: Sequence[Block]) -> dict[str, Array]:
    counts = np.array([block.counts for block in blocks], dtype=np.int64).reshape(len(blocks), len(IN_BLOCK))
    return dict(zip(IN_BLOCK, np.ascontiguousarray(counts.T), strict=True))
