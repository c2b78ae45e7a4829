"""Joins prices of candidates of one table that were priced in groups."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from strategist.cost.candidate_arrays import Counts
from strategist.cost.price import Priced

_JOINED_OTHERWISE = ("chunks", "chunk_order", "stage_layers")


def joined(pieces: Sequence[tuple[Counts, Priced]]) -> Priced:
    """The prices of a table from those of its pieces. Each row is in one piece; all pieces have the same cluster."""
    order = np.argsort(np.concatenate([rows for rows, _ in pieces]), kind="stable")
    prices = [priced for _, priced in pieces]
    columns = {
        item.name: _in_order([getattr(priced, item.name) for priced in prices], order)
        for item in fields(prices[0])
        if item.name not in _JOINED_OTHERWISE
    }
    layers = {int(rows[row]): counts for rows, priced in pieces for row, counts in priced.stage_layers.items()}
    chunks = tuple(chunk for priced in prices for chunk in priced.chunks)
    return replace(prices[0], **columns, chunks=chunks, chunk_order=order, stage_layers=layers)


def _in_order(values: Sequence[Any], order: Counts) -> Any:
    """Columns, alone or in tuples and mappings, joined along their rows; figures of all candidates are equal."""
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values, axis=-1)[..., order]
    if isinstance(first, dict):
        return {name: _in_order([value[name] for value in values], order) for name in first}
    if isinstance(first, tuple):
        return tuple(_in_order(list(parts), order) for parts in zip(*values, strict=True))
    return first
