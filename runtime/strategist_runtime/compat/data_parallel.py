"""FSDP2 and DDP features that torch exposes under private names only."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp._fully_shard._fsdp_param as fsdp_param_module
import torch.distributed.fsdp._fully_shard._fully_shard as fully_shard_module
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from strategist_runtime.compat.device import with_values

# The logits are such a view; no operation changes them in place.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


@contextmanager
def shared_reshard_groups() -> Iterator[None]:
    """Context in which FSDP2 modules on one mesh share the process groups of ``reshard_after_forward=<int>``.

    Otherwise torch makes a new mesh for each module, and so a communicator and its buffers for each layer.
    """
    original: Callable[..., Any] = fully_shard_module._get_post_forward_mesh_info
    mesh_infos: dict[tuple[Any, int, type], Any] = {}

    def shared(reshard_after_forward: bool | int, mesh_info: Any) -> Any:
        key = (mesh_info.mesh, int(reshard_after_forward), type(reshard_after_forward))
        if key not in mesh_infos:
            with with_values():
                mesh_infos[key] = original(reshard_after_forward, mesh_info)
        # True means "the mesh of the parameters", which torch compares by identity.
        return mesh_info if reshard_after_forward is True else mesh_infos[key]

    fully_shard_module._get_post_forward_mesh_info = shared
    try:
        yield
    finally:
        fully_shard_module._get_post_forward_mesh_info = original


class _Modules:
    """``torch.nn``, except that integer parameters are frozen."""

    def __getattr__(self, name: str) -> Any:
        return getattr(nn, name)

    @staticmethod
    def Parameter(data: Tensor, requires_grad: bool = True) -> nn.Parameter:  # noqa: N802
        return nn.Parameter(data, requires_grad and data.is_floating_point())


def shard_quantised_weights() -> None:
    """Makes FSDP2 shard and gather parameters of bytes unchanged. torch 2.11 first makes each shard a parameter that requires
    gradients, and casts it to the compute type; later versions do neither. Cannot be undone.
    """
    sharding: Any = fsdp_param_module
    if isinstance(sharding.nn, _Modules):
        return
    sharding.nn = _Modules()
    original: Callable[..., None] = sharding.FSDPParam.init_dtype_attrs

    def init_dtype_attrs(parameter: Any, policy: MixedPrecisionPolicy) -> None:
        original(parameter, policy)
        if not parameter.orig_dtype.is_floating_point:
            parameter.param_dtype = None

    sharding.FSDPParam.init_dtype_attrs = init_dtype_attrs


def disable_bucket_copy_back(wrapped: DistributedDataParallel) -> None:
    """Stops DDP from copying its buckets back to the gradients at the end of a backward pass, since the optimizers have already
    used them.
    """
    wrapped.reducer._set_optimizer_in_backward()  # type: ignore[attr-defined]


def assigned_to_buckets(
    tensors: Sequence[Tensor], limits_bytes: Sequence[int], sparse: Sequence[bool], indices: Sequence[int]
) -> Sequence[Sequence[int]]:
    """The ``indices`` of tensors by DDP bucket. ``limits_bytes`` are the size limits: of the first buckets, the last one of all
    others.
    """
    return dist._compute_bucket_assignment_by_size(list(tensors), list(limits_bytes), list(sparse), list(indices))[0]


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Calls ``callback`` at the end of the running backward pass."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)
