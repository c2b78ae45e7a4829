"""Selective recomputation of layers inside which FSDP2 gathers parameters, as for experts on a separate mesh.

torch counts every operation of both passes, and refuses a second pass with more of one than the first. FSDP2 gathers, prefetches
and frees at other times in the second pass, so its operations are hidden from the count.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    _CHECKPOINT_PREFIX,
    _CHECKPOINT_WRAPPED_MODULE,
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import (
    CheckpointPolicy,
    _CachedTorchDispatchMode,
    _CachingTorchDispatchMode,
    _VersionWrapper,
    create_selective_checkpoint_contexts,
)

Policy = Callable[..., CheckpointPolicy]


class Packing(NamedTuple):
    """Hooks that pack and unpack saved tensors, for example to offload them."""

    pack: Callable[[Tensor], Any]
    unpack: Callable[[Any], Any]


def _operations(namespace: str, *names: str) -> frozenset[Any]:
    """The operators of these names that the installed torch has."""
    found = getattr(torch.ops, namespace)
    return frozenset(getattr(found, name).default for name in names if hasattr(found, name))


MATMULS = _operations("aten", "mm", "addmm", "bmm", "_grouped_mm", "_scaled_mm")
ATTENTION = _operations(
    "aten",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
"""Fused attention kernels of all devices."""

CHOICES = _operations("aten", "topk")
"""Choice of experts."""

COLLECTIVES = _operations("_c10d_functional", "all_reduce", "reduce_scatter_tensor", "all_to_all_single")
"""Collectives whose outputs are no larger than their inputs; so without all-gathers."""


class _Gathering:
    """Depth of running FSDP2 hooks. A class variable suffices: backward passes run in threads, but one at a time per device."""

    depth = 0


class _OutsideGathering(TorchDispatchMode):
    """Dispatch mode that leaves the operations of gathering hooks alone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _Gathering.depth:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


class _SavingMode(_OutsideGathering, _CachingTorchDispatchMode):
    """Forward pass: keeps the results that the policy saves."""


class _RecomputingMode(_OutsideGathering, _CachedTorchDispatchMode):
    """Recomputation: takes the kept results."""


class _Entry:
    """A packed saved tensor, with the interface of torch's ``_VersionWrapper``."""

    def __init__(self, tensor: Any, packing: Packing) -> None:
        self.unpack, self.packed = packing.unpack, packing.pack(tensor) if isinstance(tensor, Tensor) else tensor

    def get_val(self, _allow_cache_entry_mutation: bool) -> Any:
        return self.unpack(self.packed)


class _Packed(dict[int, Any]):
    """The packed results of one operation, by the number of its call."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing

    def __setitem__(self, call: int, saved: Any) -> None:
        super().__setitem__(call, _pack_saved(saved, self.packing))


class _PackedList(list[Any]):
    """The packed results of one operation in call order, as torch 2.11 stores them."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing

    def append(self, saved: Any) -> None:
        super().append(_pack_saved(saved, self.packing))


def _pack_saved(saved: Any, packing: Packing) -> Any:
    return tree_map(lambda leaf: _Entry(leaf.val, packing) if isinstance(leaf, _VersionWrapper) else leaf, saved)


def selective_contexts(
    policy: Policy, packing: Packing | None = None
) -> tuple[_CachingTorchDispatchMode, _CachedTorchDispatchMode]:
    """torch's contexts of both passes, which ignore operations hidden by ``hide_gathers``; saved tensors are packed by
    ``packing``, if given.
    """
    saving, recomputing = create_selective_checkpoint_contexts(policy)
    saving.__class__, recomputing.__class__ = _SavingMode, _RecomputingMode
    if packing is not None:
        storage: Any = saving.storage
        by_order = storage.default_factory is list
        saving.storage = recomputing.storage = defaultdict(partial(_PackedList if by_order else _Packed, packing))
    return saving, recomputing


def checkpointed(layer: nn.Module, **contexts: Any) -> nn.Module:
    """A layer with activation checkpointing, without saving the random generator's state: no layer draws random numbers."""
    return checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False, **contexts)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module without its activation checkpointing wrapper."""
    inner: nn.Module = getattr(module, _CHECKPOINT_WRAPPED_MODULE, module)
    return inner


def without_checkpoint_wrapper(name: str) -> str:
    """The name of a parameter or a module without the names of activation checkpointing wrappers."""
    return name.replace(_CHECKPOINT_PREFIX, "").removesuffix(f".{_CHECKPOINT_WRAPPED_MODULE}")


def hide_gathers(module: nn.Module) -> None:
    """Hides FSDP2's operations before and after the forward pass of ``module``, to which FSDP2 must be applied already."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in list(hooks.items()):
            hooks[key] = partial(_run_hidden, hook)


def _run_hidden(hook: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    _Gathering.depth += 1
    try:
        return hook(*arguments, **options)
    finally:
        _Gathering.depth -= 1
