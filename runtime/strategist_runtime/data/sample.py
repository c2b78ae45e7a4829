"""A sample: T + 1 token ids (T inputs, T targets); and the interface of datasets, which return samples."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One training sequence of T + 1 token ids.

    ids: [T + 1], int64.
    trained: [T + 1], which of them the loss counts as targets; None for all.
    documents: [T + 1], number of each token's document, from 0 on; None if the sample is one document.
    """

    ids: Tensor
    trained: Tensor | None = None
    documents: Tensor | None = None

    @classmethod
    def of(cls, ids: Tensor, *, end: int | None) -> "Sample":
        """A sample with all tokens trained; documents end with the token ``end``, None if the sample is one document."""
        if end is None:
            return cls(ids=ids)
        ends = (ids == end).long()
        return cls(ids=ids, documents=ends.cumsum(dim=0) - ends)


class Dataset(Protocol):
    """Samples by number; ``samples`` is their count, None for an endless dataset."""

    @property
    def samples(self) -> int | None: ...

    def sample(self, number: int) -> Sample:
        """The sample with this number, the same on every rank."""
        ...

    def trained(self, number: int) -> int:
        """The number of targets of a sample that the loss counts."""
        ...


def padded(size: int) -> Sample:
    """A sample of padding, without targets in the loss."""
    return Sample(ids=torch.zeros(size, dtype=torch.int64), trained=torch.zeros(size, dtype=torch.bool))
