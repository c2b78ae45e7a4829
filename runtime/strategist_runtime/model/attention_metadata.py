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
    whole sequences, for which the kernels need none; ``window_mask`` is the mask of layers with sliding-window attention.

    Like ``Rotary``, deliberately no tensor and no module.
    """

    rotary: Rotary | None
    positions: Tensor
    mask: compat_context.Mask | None = None
    window_mask: compat_context.Mask | None = None


class MetadataBuilder:
    """Builds the attention metadata of a part of a model.

    ``order`` [S] is the order in which the context-parallel ranks hold the tokens of a sequence, one rank after the other; this
    rank is ``rank`` of ``ranks``. ``always_mask`` requests a mask even where a kernel needs none. ``window``: number of tokens that
    layers with sliding-window attention see; no effect if 0 or at least S.
    """

    def __init__(
        self, rotary: Rotary | None, order: Tensor, *, rank: int = 0, ranks: int = 1, always_mask: bool = False, window: int = 0
    ) -> None:
        self.order, self.rank, self.ranks = order, rank, ranks
        self.window = window if window < order.shape[-1] else 0
        self.rotary = rotary
        self.local_rotary = rotary if rotary is None or ranks == 1 else rotary.at(self._local_part(order))
        one_document, rows = torch.zeros_like(self.order)[None], self.order[None]
        mask = self._mask(one_document, rows) if always_mask else None
        window_mask = self._mask(one_document, rows, self.window) if self.window else mask
        self.default = AttentionMetadata(
            rotary=self.local_rotary, positions=self._local_part(self.order), mask=mask, window_mask=window_mask
        )

    def build(self, documents: Tensor | None = None, order: Tensor | None = None) -> AttentionMetadata:
        """Metadata of rows with ``documents`` [B, S]; ``order`` [B, S] is the token order of each row, None if all have the
        common one.
        """
        if documents is None:
            return self.default
        row_order = self.order.expand_as(documents) if order is None else order
        rotary = self.local_rotary if order is None or self.rotary is None else self.rotary.at(self._local_part(order))
        positions = self._local_part(positions_in_documents(documents).gather(1, row_order))
        ordered_documents = documents.gather(1, row_order)
        mask = self._mask(ordered_documents, row_order)
        window_mask = self._mask(ordered_documents, row_order, self.window) if self.window else mask
        return AttentionMetadata(rotary=rotary, positions=positions, mask=mask, window_mask=window_mask)

    def tensors(self) -> Iterator[Tensor]:
        """The tensors that the builder keeps between steps, except masks."""
        for tables in {id(tables): tables for tables in (self.rotary, self.local_rotary) if tables is not None}.values():
            yield from (tables.cos, tables.sin)

    def to(self, device: torch.device) -> "MetadataBuilder":
        """The builder of the same part for another device: that of the computation, if weights are stored elsewhere."""
        rotary = None if self.rotary is None else self.rotary.to(device)
        always_mask = self.default.mask is not None
        return MetadataBuilder(
            rotary, self.order.to(device), rank=self.rank, ranks=self.ranks, always_mask=always_mask, window=self.window
        )

    def _local_part(self, whole: Tensor) -> Tensor:
        """This rank's part of a tensor whose last dimension is the tokens of the sequence."""
        return whole.chunk(self.ranks, dim=-1)[self.rank]

    def _mask(self, documents: Tensor, order: Tensor, window: int = 0) -> compat_context.Mask:
        """Mask of visible keys. ``documents`` and ``order`` [B, S] are those of the keys, in the order in which ranks hold them;
        this rank's queries are a part of them.
        """
        (rows, keys), queries = order.shape, order.shape[1] // self.ranks
        first_query = self.rank * queries

        def is_visible(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            same_document = documents[row, query + first_query] == documents[row, key]
            distance = order[row, query + first_query] - order[row, key]
            return same_document & (distance >= 0) & (distance < (window or keys))

        return compat_context.mask(is_visible, rows, queries, keys, order.device)


def positions_in_documents(documents: Tensor) -> Tensor:
    """The distance of each token from the first token of its document, [B, S]."""
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    is_first = torch.ones_like(documents, dtype=torch.bool)
    is_first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(is_first, index, 0).cummax(dim=1).values
