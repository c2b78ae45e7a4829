"""Gradients of a step over all ranks: global norm, and clipping by it."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from strategist_runtime.compat import kernels
from strategist_runtime.compat.dtensor import local


def squared_norm_share(parameters: Iterable[nn.Parameter], stages: int = 1) -> Tensor:
    """This rank's term of a sum over ranks that equals world size x the squared norm of the whole gradient.

    A gradient in ``n`` shards, each on world / n ranks, counts ``n`` times per shard. It counts ``stages`` times more if it
    belongs to one of that many pipeline ranks. The meshes make no difference.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    norms = kernels.norms([local(gradient) for gradient in gradients])
    shard_counts = torch.tensor([_shard_count(gradient) for gradient in gradients], dtype=torch.float64)
    return stages * (norms.double().square() * shard_counts.to(norms.device)).sum()


def scale(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiplies every gradient by ``factor``, in place."""
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if gradients and factor != 1.0:
        kernels.multiply(gradients, factor)


def clip_factor(norm: float, max_norm: float | None) -> float:
    """The factor that reduces a gradient's norm to at most ``max_norm``; None: no clipping."""
    return 1.0 if max_norm is None or norm <= max_norm else max_norm / norm


def _shard_count(gradient: Tensor) -> int:
    """The number of different shards of a gradient."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes: Sequence[tuple[int, object]] = list(zip(gradient.device_mesh.shape, gradient.placements, strict=True))
    return math.prod(size for size, placement in sizes if not isinstance(placement, Replicate))
