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
    """Positions, rotary tables and masks of a micro-batch's tokens.

    ``positions`` [T] or [B, T] count from the beginning of each document; ``rotary`` has the tables of the same tokens. Rotary
    tables count from the beginning of the sequence instead: attention depends only on the distance of two tokens, and no token
    sees another document. So the results are the same, and one table serves all rows. ``mask`` is None for causal attention over
    whole sequences, for which the kernels need none; ``windowed`` is the mask of layers with sliding-window attention.

    Like ``Rotary``, deliberately no tensor and no module.
    """

    rotary: Rotary | None
    positions: Tensor
    mask: compat_context.Mask | None = None
    windowed: compat_context.Mask | None = None


class MetadataBuilder:
    """Builds the attention metadata of a part of a model.

    ``order`` [S] is the order in which the context-parallel ranks hold the tokens of a sequence, one rank after the other; this
    rank is ``rank`` of ``ranks``. ``masked`` requests a mask even where a kernel needs none. ``window``: number of tokens that
    layers with sliding-window attention see; no effect if 0 or at least S.
    """

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
        """Metadata of rows with ``documents`` [B, S]; ``order`` [B, S] is the token order of each row, None if all have the
        common one.
        """
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
        """The tensors that the builder keeps between steps, except masks."""
        for tables in {id(tables): tables for tables in (self.whole, self.tables) if tables is not None}.values():
            yield from (tables.cos, tables.sin)

    def on(self, device: torch.device) -> "MetadataBuilder":
        """The builder of the same part for another device: that of the computation, if weights are stored elsewhere."""
        rotary = None if self.whole is None else self.whole.on(device)
        masked = self.plain.mask is not None
        return MetadataBuilder(rotary, self.order.to(device), rank=self.rank, ranks=self.ranks, masked=masked, window=self.window)

    def _own(self, whole: Tensor) -> Tensor:
        """This rank's part of a tensor whose last dimension is the tokens of the sequence."""
        return whole.chunk(self.ranks, dim=-1)[self.rank]

    def _masked(self, documents: Tensor, order: Tensor, window: int = 0) -> compat_context.Mask:
        """Mask of visible keys. ``documents`` and ``order`` [B, S] are those of the keys, in the order in which ranks hold them;
        this rank's queries are a part of them.
        """
        (rows, keys), queries = order.shape, order.shape[1] // self.ranks
        first = self.rank * queries

        def sees(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            inside = documents[row, query + first] == documents[row, key]
            back = order[row, query + first] - order[row, key]
            return inside & (back >= 0) & (back < (window or keys))

        return compat_context.mask(sees, rows, queries, keys, order.device)


def within_documents(documents: Tensor) -> Tensor:
    """The distance of each token from the first token of its document, [B, S]."""
    here = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return here - torch.where(begins, here, 0).cummax(dim=1).values
