"""Groups of similar candidates: those that differ in minor settings only."""

import numpy as np

from strategist.contract.layout import DEGREES
from strategist.expr.columns import Array, Columns

GROUP_COLUMNS = (*(f"layout.{name}" for name in DEGREES), "knobs.recompute", "knobs.offload", "knobs.activation_offload")
"""Columns by which candidates are grouped. One candidate represents its group: the best that fits, or the smallest if none does."""


def groups_of(columns: Columns) -> tuple[Array, Array]:
    """Group number of each row, and the size of each group."""
    group = np.zeros(columns.rows, dtype=np.int64)
    for name in GROUP_COLUMNS:
        values, codes = np.unique(columns.values[name], return_inverse=True)
        group = np.unique(group * len(values) + codes, return_inverse=True)[1]  # compressed, so that it never overflows
    return group, np.bincount(group)


def first_of_groups(groups: Array, order: Array) -> Array:
    """Rows of ``order`` that are the first of their group there, in this order."""
    _, first = np.unique(groups[order], return_index=True)
    return np.asarray(order[np.sort(first)])
