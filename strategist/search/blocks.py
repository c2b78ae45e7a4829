"""Blocks: the candidates of one layout and micro-batch, as columns; all blocks of a situation are its space."""

from collections.abc import Mapping
from functools import cache, cached_property, lru_cache

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.knobs import KnobValue
from strategist.contract.layout import DEGREES
from strategist.contract.loss import Loss, chunk_tokens
from strategist.contract.model import ModelShape
from strategist.contract.settings import SETTING_CHOICES
from strategist.contract.workload import Workload
from strategist.expr.columns import Array
from strategist.frozen import frozen

LAYOUT_NAMES = (*DEGREES, "world_size", "data_ranks", "fsdp_ranks", "model_shards")
BLOCK_NAMES = (*LAYOUT_NAMES, "micro_batch", "accumulation")
BLOCK_COLUMNS = (*(f"layout.{name}" for name in LAYOUT_NAMES), "knobs.micro_batch", "knobs.accumulation")
"""Columns with one value for all candidates of a block."""

LARGE_LOSS = 1 / 8
"""Share of a device's memory above which a whole loss is large, so that a chunked one is searched as well."""

Grid = Mapping[str, Array]
"""Combinations of knobs, as columns."""

Grids = dict[int, Grid]
"""Grids by the kind of block that has them. Many blocks share one."""


@frozen
class Blocks:
    """Layouts with a micro-batch each, in a fixed order.

    counts: values of ``BLOCK_COLUMNS``: columns x blocks.
    grid: number of each block's grid, whose combinations of knobs are the block's candidates.
    """

    counts: Array
    grid: Array

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def columns(self) -> dict[str, Array]:
        """The columns with one value per block."""
        return dict(zip(BLOCK_COLUMNS, self.counts, strict=True))

    def among(self, kept: Array) -> "Blocks":
        """Some of the blocks, by index or by boolean mask."""
        return Blocks(counts=np.ascontiguousarray(self.counts[:, kept]), grid=self.grid[kept])


@frozen
class Space(Blocks):
    """Candidates in a fixed order, as blocks with the grids of all."""

    grids: tuple[Grid, ...]

    @cached_property
    def rows(self) -> Array:
        """Number of candidates of each block."""
        return np.array([grid_rows(grid) for grid in self.grids], dtype=np.int64)[self.grid]

    @property
    def candidates(self) -> int:
        """Number of all candidates."""
        return int(self.rows.sum())

    def take(self, kept: Array) -> "Space":
        """Some of the blocks, by index or by boolean mask, with the grids that these have."""
        blocks = self.among(kept)
        used = np.bincount(blocks.grid, minlength=len(self.grids)) > 0
        grids = tuple(self.grids[number] for number in np.flatnonzero(used))
        return Space(counts=blocks.counts, grid=(np.cumsum(used) - 1)[blocks.grid], grids=grids)


def grid_rows(grid: Mapping[str, Array]) -> int:
    """Number of combinations in a grid."""
    return len(next(iter(grid.values()), ()))


def large_losses(counts: Array, model: ModelShape, cluster: Cluster, workload: Workload) -> Array:
    """Whether a micro-batch of each block has several chunks of the loss, and a whole loss of it is large."""
    at = dict(zip(BLOCK_NAMES, counts, strict=True))
    tokens = at["micro_batch"] * workload.seq_len / at["cp"]
    whole_bytes = Loss().logit_bytes * tokens * model.vocab_size / at["tp"]
    large = whole_bytes > LARGE_LOSS * cluster.device.usable_memory_bytes
    return np.asarray(large & (tokens > chunk_tokens(model.hidden_size)))


@cache  # all grids have the same few
def coded(name: str, values: tuple[KnobValue, ...]) -> Array:
    """Values of a setting as a column: codes where it has named choices."""
    choices = SETTING_CHOICES.get(name)
    if choices is None:
        return np.array(values, dtype=np.int64)
    return np.array([code_of(choices, value) for value in values], dtype=np.int8)


@lru_cache(maxsize=None, typed=True)
def code_of(choices: tuple[KnobValue, ...], value: KnobValue) -> int:
    """Code of a value among the named choices of a setting; True is not 1."""
    return next(code for code, choice in enumerate(choices) if type(choice) is type(value) and choice == value)
