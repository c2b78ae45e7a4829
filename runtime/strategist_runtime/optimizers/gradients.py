"""Gradients of a step over all ranks: global norm, and clipping by it."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from strategist_runtime.compat import kernels
from strategist_runtime.compat.dtensor import local


def squared_norm_share(parameters: Iterable[nn.Parameter], stages: int = 1) -> Tensor:
    """This rank's term of a sum over ranks that gives world size x the squared norm of the whole gradient.

    A gradient that lies in ``n`` pieces on a mesh, each piece on world / n ranks, counts ``n`` times per piece, and ``stages``
    times more where each of as many ranks of a pipeline has parameters of its own; on which meshes they lie makes no difference.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    norms = kernels.norms([local(gradient) for gradient in gradients])
    pieces = torch.tensor([_pieces(gradient) for gradient in gradients], dtype=torch.float64)
    return stages * (norms.double().square() * pieces.to(norms.device)).sum()


def scale(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiplies every gradient."""
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if gradients and factor != 1.0:
        kernels.multiply(gradients, factor)


def clip_factor(norm: float, most: float | None) -> float:
    """By what a gradient is multiplied so that its norm is ``most`` at most; None clips nothing."""
    return 1.0 if most is None or norm <= most else most / norm


def _pieces(gradient: Tensor) -> int:
    """In how many different pieces a gradient lies over the ranks."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes: Sequence[tuple[int, object]] = list(zip(gradient.device_mesh.shape, gradient.placements, strict=True))
    return math.prod(size for size, placement in sizes if not isinstance(placement, Replicate))
