"""Synthetic text that can be learned: each sequence counts up by its own small stride, modulo the vocabulary."""

from dataclasses import dataclass

import torch
from torch import Tensor

STRIDES = 4


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Token ids and the ids that follow them, [rows, T] each, of this rank's rows."""

    tokens: Tensor
    targets: Tensor


def batch(*, seed: int, step: int, global_batch: int, seq_len: int, vocab_size: int, rank: int, ranks: int) -> Batch:
    """The rows of data rank ``rank`` of ``ranks`` in the global batch of ``step``: a slice of what a single process would read."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(vocab_size, (global_batch, 1), generator=generator)
    strides = torch.randint(1, STRIDES + 1, (global_batch, 1), generator=generator)
    rows = global_batch // ranks
    mine = slice(rank * rows, (rank + 1) * rows)
    text = (starts[mine] + strides[mine] * torch.arange(seq_len + 1)) % vocab_size
    return Batch(tokens=text[:, :-1].contiguous(), targets=text[:, 1:].contiguous())
