"""Attention metadata of a micro-batch: positions of its tokens, document boundaries and masks.

Shapes: B sequences, S tokens of a whole sequence, T of them on this rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from strategist_runtime.compat import context as compat_context
from strategist_runtime.model.rotary import Rotary


@dataclass(frozen=True, kw_only=True)
class AttentionMetadata:
    """``positions`` [T] or [B, T] count from the beginning of each document; ``rotary`` holds the tables of the same tokens.

    Rotary tables count from the beginning of the sequence instead: only how far apart two tokens are changes attention, and no
    token sees another document, so both ways of counting train the same, and one table serves all rows. ``mask`` is None for
    causal attention over whole sequences, for which there are kernels without one; ``windowed`` is that of layers in which a
    token sees the latest ones only.

    No tensor and no module, as ``Rotary``.
    """

    rotary: Rotary | None
    positions: Tensor
    mask: compat_context.Mask | None = None
    windowed: compat_context.Mask | None = None


class MetadataBuilder:
    """Metadata of a part of a model. ``order`` [S] is that in which the ranks of a sequence, this one being number ``rank`` of
    ``ranks``, hold its tokens one after the other; ``masked`` asks for a mask where a kernel could do without; with a
    ``window`` below S some layers see so many tokens only."""

    def __init__(
        self, rotary: Rotary | None, order: Tensor, *, rank: int = 0, ranks: int = 1, masked: bool = False, window: int = 0
    ) -> None:
        self.order, self.rank, self.ranks = order, rank, ranks
        self.window = window if window < order.shape[-1] else 0
        self.whole = rotary
        self.tables = rotary if rotary is None or ranks == 1 else rotary.at(self._own(order))
        one, own = torch.zeros_like(self.order)[None], self.order[None]
        plain = self._masked(one, own) if masked else None
        windowed = self._masked(one, own, self.window) if self.window else plain
        self.plain = AttentionMetadata(rotary=self.tables, positions=self._own(self.order), mask=plain, windowed=windowed)

    def of(self, documents: Tensor | None = None, order: Tensor | None = None) -> AttentionMetadata:
        """Metadata of rows with these ``documents`` [B, S], whose tokens lie in this ``order`` [B, S] where each has its own."""
        if documents is None:
            return self.plain
        placed = self.order.expand_as(documents) if order is None else order
        tables = self.tables if order is None or self.whole is None else self.whole.at(self._own(order))
        positions = self._own(within_documents(documents).gather(1, placed))
        placed_documents = documents.gather(1, placed)
        mask = self._masked(placed_documents, placed)
        windowed = self._masked(placed_documents, placed, self.window) if self.window else mask
        return AttentionMetadata(rotary=tables, positions=positions, mask=mask, windowed=windowed)

    def tensors(self) -> Iterator[Tensor]:
        """What it keeps between steps, except masks."""
        for tables in {id(tables): tables for tables in (self.whole, self.tables) if tables is not None}.values():
            yield from (tables.cos, tables.sin)

    def on(self, device: torch.device) -> "MetadataBuilder":
        """Those of the same part whose layers compute on another device than their weights lie on."""
        rotary = None if self.whole is None else self.whole.on(device)
        masked = self.plain.mask is not None
        return MetadataBuilder(rotary, self.order.to(device), rank=self.rank, ranks=self.ranks, masked=masked, window=self.window)

    def _own(self, whole: Tensor) -> Tensor:
        """This rank's part of what is said of each token of a sequence."""
        return whole.chunk(self.ranks, dim=-1)[self.rank]

    def _masked(self, documents: Tensor, order: Tensor, window: int = 0) -> compat_context.Mask:
        """Mask of visible keys: ``documents`` and ``order`` [B, S] of the keys, as they lie; this rank's queries are a part of
        them."""
        (rows, keys), queries = order.shape, order.shape[1] // self.ranks
        first = self.rank * queries

        def sees(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            inside = documents[row, query + first] == documents[row, key]
            back = order[row, query + first] - order[row, key]
            return inside & (back >= 0) & (back < (window or keys))

        return compat_context.mask(sees, rows, queries, keys, order.device)


def within_documents(documents: Tensor) -> Tensor:
    """How far each token is from the first one of its document, [B, S]."""
    here = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return here - torch.where(begins, here, 0).cummax(dim=1).values
