"""torch's element-wise optimizers, which update each rank's shards without DTensor's dispatch."""

from typing import Any

import torch
from torch import Tensor

from strategist_runtime.compat.dtensor import placed_like, wait_for_local


class _OnShards(torch.optim.Optimizer):
    """Updates shards; the states stay DTensors, as checkpoints need them.

    With DTensors torch finds the sharding of each operation from those of all parameters, anew in each process, and looks it up
    by comparing all of them in each step.
    """

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        special: bool = super()._init_group(group, *lists)  # type: ignore[misc]
        parameters, gradients, *_ = lists
        gradients[:] = map(placed_like, gradients, parameters)
        for tensors in lists:
            tensors[:] = map(wait_for_local, tensors)
        return special


class AdamW(_OnShards, torch.optim.AdamW):
    """torch's AdamW (arXiv 1711.05101)."""


class SGD(_OnShards, torch.optim.SGD):
    """torch's SGD."""
