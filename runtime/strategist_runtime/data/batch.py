"""A batch: one rank's part of a step's data."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from strategist.contract.loss import IGNORED as IGNORED


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one rank: ``tokens`` and ``targets`` (the next tokens), [rows, T] each.

    ``documents`` [rows, S]: the number of each token's document in its whole row, from 0 on; None if each row is one document.
    ``order`` [rows, S]: the order in which context-parallel ranks hold a row's tokens; None if all rows have the same.
    ``trained``: targets of the global batch that are not ignored, divided by the data ranks; None if none is ignored.
    """

    tokens: Tensor
    targets: Tensor
    documents: Tensor | None = None
    order: Tensor | None = None
    trained: float | None = None

    def tensors(self) -> dict[str, Tensor]:
        """The batch's tensors by name, without those that are None."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def to(self, device: torch.device) -> "Batch":
        """A copy of the batch on a device."""
        return self._with({name: value.to(device) for name, value in self.tensors().items()})

    def micro_batches(self, size: int) -> Iterator["Batch"]:
        """Micro-batches of ``size`` rows, in order."""
        for first in range(0, len(self.tokens), size):
            yield self._with({name: value[first : first + size] for name, value in self.tensors().items()})

    def _with(self, tensors: dict[str, Any]) -> "Batch":
        return replace(self, **tensors)

    def extras(self, *, targets: bool) -> dict[str, Tensor]:
        """Keyword arguments of every part of a model besides its input; with ``targets`` the model computes its loss itself."""
        names = ("documents", "order", "targets") if targets else ("documents", "order")
        return {name: value for name, value in self.tensors().items() if name in names}
