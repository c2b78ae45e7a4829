"""A batch: the part of a step's data that one rank processes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
"""Target of a token that no loss is computed for (``ignore_index`` of torch's cross entropy)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Token ids and the ids that follow them, [rows, T] each, of this rank's rows.

    ``documents`` [rows, S] numbers the documents of each whole row from 0 on, token by token; None where a row is one. ``order``
    [rows, S] is that in which the ranks that share a row hold its tokens, where each row has its own. ``trained`` is how many
    targets of the global batch are not ignored, divided by the data ranks; None where all of them count.
    """

    tokens: Tensor
    targets: Tensor
    documents: Tensor | None = None
    order: Tensor | None = None
    trained: float | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name, those that there are."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return self._with({name: value.to(device) for name, value in self.tensors().items()})

    def micro_batches(self, size: int) -> Iterator["Batch"]:
        """``size`` rows after the other."""
        for first in range(0, len(self.tokens), size):
            yield self._with({name: value[first : first + size] for name, value in self.tensors().items()})

    def _with(self, tensors: dict[str, Any]) -> "Batch":
        return replace(self, **tensors)

    def extras(self) -> dict[str, Tensor]:
        """Keyword arguments that every part of a model gets besides its input."""
        return {name: value for name, value in self.tensors().items() if name in ("documents", "order")}
