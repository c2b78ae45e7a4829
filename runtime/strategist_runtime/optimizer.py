"""The optimizers, each one kernel (fused) or one per operation (foreach) over many parameters."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

WEIGHT_DECAY = 0.01


def make_optimizer(parameters: Iterable[nn.Parameter], name: str, kernel: str, learning_rate: float) -> torch.optim.Optimizer:
    """``adamw`` (arXiv 1711.05101), or ``sgd`` without momentum, so without state; ``kernel`` is foreach, fused or for_loop.

    Parameters on different meshes cannot share one kernel call, hence a group for each mesh.
    """
    by_mesh: dict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        by_mesh[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    groups = [{"params": group} for group in by_mesh.values()]
    if name == "sgd":  # torch has no fused one for DTensors
        return torch.optim.SGD(groups, lr=learning_rate, foreach=kernel != "for_loop")
    how = {"fused": kernel == "fused", "foreach": kernel == "foreach"}
    return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=WEIGHT_DECAY, **how)
