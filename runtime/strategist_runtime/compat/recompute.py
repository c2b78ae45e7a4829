"""Selective recomputation of a layer inside which FSDP2 gathers parameters, as it does for experts on a mesh of their own.

torch counts every operation of both passes and refuses a second pass that has more of one; FSDP2 gathers, prefetches and frees at
other times in the second. So what FSDP2 does goes unseen.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
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
    """How a saved tensor waits, and comes back."""

    pack: Callable[[Tensor], Any]
    unpack: Callable[[Any], Any]


def _operations(namespace: str, *names: str) -> frozenset[Any]:
    """Those of them that this torch has."""
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
"""The kernels of every device."""

CHOICES = _operations("aten", "topk")
"""Of experts."""

COLLECTIVES = _operations("_c10d_functional", "all_reduce", "reduce_scatter_tensor", "all_to_all_single")
"""Whose outputs are no larger than what goes in; gathers are not among them."""


class _Gathering:
    """Whether a hook of FSDP2 is running; backward passes run in threads, but one at a time for each device."""

    depth = 0


class _Keeping(_CachingTorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _Gathering.depth:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


class _Repeating(_CachedTorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _Gathering.depth:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


class _Entry:
    """A saved tensor that waits packed, with what torch asks of its own ``_VersionWrapper``."""

    def __init__(self, tensor: Any, packing: Packing) -> None:
        self.unpack, self.packed = packing.unpack, packing.pack(tensor) if isinstance(tensor, Tensor) else tensor

    def get_val(self, _allow_cache_entry_mutation: bool) -> Any:
        return self.unpack(self.packed)


class _Packed(dict[int, Any]):
    """What one operation saved, by the number of its call."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing

    def __setitem__(self, call: int, saved: Any) -> None:
        super().__setitem__(call, _waiting(saved, self.packing))


class _PackedList(list[Any]):
    """The same in the order of calls, as torch 2.11 keeps it."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing

    def append(self, saved: Any) -> None:
        super().append(_waiting(saved, self.packing))


def _waiting(saved: Any, packing: Packing) -> Any:
    return tree_map(lambda one: _Entry(one.val, packing) if isinstance(one, _VersionWrapper) else one, saved)


def selective_contexts(
    policy: Policy, packing: Packing | None = None
) -> tuple[_CachingTorchDispatchMode, _CachedTorchDispatchMode]:
    """torch's contexts of both passes, which do not see what ``hide_gathers`` hides; what is saved waits as ``packing`` says."""
    keeping, repeating = create_selective_checkpoint_contexts(policy)
    keeping.__class__, repeating.__class__ = _Keeping, _Repeating
    if packing is not None:
        kept: Any = keeping.storage
        by_order = kept.default_factory is list
        keeping.storage = repeating.storage = defaultdict(partial(_PackedList if by_order else _Packed, packing))
    return keeping, repeating


def checkpointed(layer: nn.Module, **contexts: Any) -> nn.Module:
    """A layer whose activations are computed again in the backward pass; no layer draws random numbers."""
    return checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False, **contexts)


def hide_gathers(module: nn.Module) -> None:
    """Hides what FSDP2, which ``module`` must have by now, does before and after its forward pass."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in list(hooks.items()):
            hooks[key] = partial(_hidden, hook)


def _hidden(hook: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    _Gathering.depth += 1
    try:
        return hook(*arguments, **named)
    finally:
        _Gathering.depth -= 1
