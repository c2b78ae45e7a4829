"""Local shards of DTensors, and DTensors built from local shards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.optim._muon as muon_module
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard._fsdp_common import _from_local_no_grad
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from strategist_runtime.compat.device import with_values


def local(value: Tensor) -> Tensor:
    """This rank's shard of a tensor."""
    return value.to_local() if isinstance(value, DTensor) else value


def local_share(value: Tensor) -> Tensor:
    """The local value of a replicated tensor that each rank uses for its own heads; its gradient is the sum over ranks."""
    return value.to_local(grad_placements=[Partial()] * value.device_mesh.ndim) if isinstance(value, DTensor) else value


class _Replicated(torch.autograd.Function):
    """``DTensor.from_local`` with partial gradients: torch 2.11 has no ``grad_placements``."""

    @staticmethod
    def forward(context: Any, value: Tensor, mesh: DeviceMesh) -> Tensor:
        return DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)

    @staticmethod
    def backward(context: Any, gradient: Any) -> tuple[Tensor, None]:
        return gradient.redistribute(placements=[Partial()] * gradient.device_mesh.ndim).to_local(), None


def replicated(value: Tensor, mesh: DeviceMesh) -> Tensor:
    """A value that is equal on all ranks, as a replicated DTensor; the gradient that leaves is each rank's partial sum."""
    tensor: Tensor = _Replicated.apply(value, mesh)
    return tensor


def wait_for_local(value: Tensor) -> Tensor:
    """This rank's shard of a tensor; the current stream waits for the collective that produces it."""
    shard = value._local_tensor if isinstance(value, DTensor) else value
    return shard.wait() if isinstance(shard, AsyncCollectiveTensor) else shard


def placed_like(value: Tensor, other: Tensor) -> Tensor:
    """A tensor with the placements of another one on the same mesh."""
    if isinstance(value, DTensor) and isinstance(other, DTensor) and value.placements != other.placements:
        return value.redistribute(placements=other.placements)
    return value


def local_part(parameter: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """This rank's shard of a parameter, its shape, and its offsets in the whole."""
    if not isinstance(parameter, DTensor):
        return parameter, tuple(parameter.shape), (0,) * parameter.dim()
    with with_values():
        lengths, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return parameter.to_local(), tuple(lengths), tuple(offsets)


def with_local(like: Tensor, local: Tensor) -> Tensor:
    """A tensor sharded like ``like``, with the shard ``local``, which may be on another device."""
    return _from_local_no_grad(local, like._spec) if isinstance(like, DTensor) else local


def shard_like(value: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from a shard to a tensor sharded like ``value``."""
    return partial(_wrap_shard, value._spec) if isinstance(value, DTensor) else _identity


def _wrap_shard(spec: object, shard: Tensor) -> Tensor:
    return DTensor(shard, spec, requires_grad=False)


def _identity(shard: Tensor) -> Tensor:
    return shard


def copy_rows(local: Tensor, offsets: tuple[int, ...], start: int, values: Tensor) -> None:
    """Copies ``values``, whole rows of a matrix from row ``start`` on, as far as they overlap ``local``, the window of the
    matrix at ``offsets``.
    """
    first, column = offsets
    low, high = max(first, start), min(first + local.shape[0], start + values.shape[0])
    if low < high:
        local[low - first : high - first].copy_(values[low - start : high - start, column : column + local.shape[1]])


def host_copy(parameter: nn.Parameter, *, pinned: bool) -> nn.Parameter:
    """A copy of a parameter whose shard is in host memory."""
    local = local_part(parameter)[0].detach().to("cpu", copy=True)
    return nn.Parameter(with_local(parameter, local.pin_memory() if pinned else local))


def alias_of(parameter: nn.Parameter) -> nn.Parameter:
    """A separate parameter that shares the memory."""
    return nn.Parameter(with_local(parameter, local_part(parameter)[0].detach()))


def update_alias(alias: nn.Parameter, parameter: nn.Parameter) -> None:
    """Makes an alias share the parameter's current memory again: FSDP2 replaces it by pinned memory in the first forward pass."""
    local_part(alias)[0].data = local_part(parameter)[0].detach()


def version_of(tensor: Tensor) -> int:
    """The number of in-place changes of a tensor; a shard counts separately from its DTensor."""
    return tensor._version


class AwaitedCollective(torch.autograd.Function):
    """The result of a collective as a plain tensor, with its gradient.

    A compiled module waits for an asynchronous argument by itself, but outside of autograd: in torch 2.13 that argument then
    silently gets no gradient.
    """

    @staticmethod
    def forward(_context: Any, value: Tensor) -> Tensor:
        return value.trigger_wait() if isinstance(value, AsyncCollectiveTensor) else value.view_as(value)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return gradient


@contextmanager
def whole_matrices() -> Iterator[None]:
    """Context in which torch's Muon computes on whole matrices: each rank gathers a matrix, and keeps its shard of the result."""
    original: Callable[..., Tensor] = muon_module._zeropower_via_newtonschulz

    def whole(update: Tensor, *settings: Any) -> Tensor:
        if not isinstance(update, DTensor):
            return original(update, *settings)
        local = update.to_local()
        sent = _from_local_no_grad(local.to(device=update.device_mesh.device_type, dtype=torch.bfloat16), update._spec)
        result = original(sent.full_tensor(), *settings)
        _, lengths, offsets = local_part(update)
        shard = result[tuple(slice(first, first + length) for first, length in zip(offsets, lengths, strict=True))]
        return with_local(update, shard.to(device=local.device, dtype=update.dtype).contiguous())

    muon_module._zeropower_via_newtonschulz = whole  # type: ignore[assignment]
    try:
        yield
    finally:
        muon_module._zeropower_via_newtonschulz = original


def key_of(storage: torch.UntypedStorage) -> int:
    """An identity of the storage, the same for all tensors in it while it lives."""
    return storage._cdata
