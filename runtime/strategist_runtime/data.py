"""Synthetic text that can be learned: each sequence counts up by its own small stride, modulo the vocabulary."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

STRIDES = 4


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Token ids and the ids that follow them, [rows, T] each, of this rank's rows.

    ``documents`` [rows, S] numbers the documents of each whole row from 0 on, token by token; None where a row is one. ``order``
    [rows, S] is that in which the ranks that share a row hold its tokens, where each row has its own.
    """

    tokens: Tensor
    targets: Tensor
    documents: Tensor | None = None
    order: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """What is there, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(**{name: value.to(device) for name, value in self.tensors().items()})

    def micro_batches(self, size: int) -> Iterator["Batch"]:
        """``size`` rows after the other."""
        for first in range(0, len(self.tokens), size):
            yield Batch(**{name: value[first : first + size] for name, value in self.tensors().items()})

    def extras(self) -> dict[str, Tensor]:
        """What every part of a model is told besides its input."""
        return {name: value for name, value in self.tensors().items() if name in ("documents", "order")}


def batch(*, seed: int, step: int, global_batch: int, seq_len: int, vocab_size: int, rank: int, ranks: int) -> Batch:
    """The rows of data rank ``rank`` of ``ranks`` in the global batch of ``step``: a slice of what a single process would read."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(vocab_size, (global_batch, 1), generator=generator)
    strides = torch.randint(1, STRIDES + 1, (global_batch, 1), generator=generator)
    rows = global_batch // ranks
    mine = slice(rank * rows, (rank + 1) * rows)
    text = (starts[mine] + strides[mine] * torch.arange(seq_len + 1)) % vocab_size
    return Batch(tokens=text[:, :-1].contiguous(), targets=text[:, 1:].contiguous())
