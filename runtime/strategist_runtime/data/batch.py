"""A batch: what one rank is given of a step."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


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
