"""A sample: T + 1 token ids (T inputs, T targets); and the texts that yield samples."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sample:
    """``ids`` [T + 1], int64. ``trained`` [T + 1] says which of them the loss counts as targets, None for all; ``documents``
    [T + 1] which document of the sample each belongs to, from 0 on, None where the sample is one."""

    ids: Tensor
    trained: Tensor | None = None
    documents: Tensor | None = None

    @classmethod
    def of(cls, ids: Tensor, *, end: int | None) -> "Sample":
        """All of whose tokens are trained, and whose documents end with the token ``end``, where that is given."""
        if end is None:
            return cls(ids=ids)
        ends = (ids == end).long()
        return cls(ids=ids, documents=ends.cumsum(dim=0) - ends)


class Text(Protocol):
    """Samples by number; ``samples`` is how many there are, None where they never end."""

    @property
    def samples(self) -> int | None: ...

    def sample(self, number: int) -> Sample:
        """The sample of a number, the same on every rank."""
        ...

    def trained(self, number: int) -> int:
        """How many targets of a sample the loss counts."""
        ...


def padded(size: int) -> Sample:
    """A sample that nothing is learned from."""
    return Sample(ids=torch.zeros(size, dtype=torch.int64), trained=torch.zeros(size, dtype=torch.bool))
