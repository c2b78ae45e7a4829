"""Patches for training with TorchTitan 0.3.0 on CPUs with gloo and torch 2.13: TorchTitan expects a GPU and torch's nightly builds.

Python imports this file automatically if its folder is on PYTHONPATH.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any

KERNELS = ("torchtitan.distributed.minimal_async_ep.kernels", "torchtitan.models.moe.kernels")


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that provides an empty module for triton kernels."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in KERNELS else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: None
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def device() -> None:
    """Makes the CPU the only device type, with figures that a GPU would report."""
    import torch
    import torch._utils

    torch._utils._get_available_device_type = lambda: "cpu"
    memory = {"active_bytes.all.peak": 2**29, "reserved_bytes.all.peak": 2**30}
    answers = {
        "memory_stats": memory, "reset_peak_memory_stats": None, "empty_cache": None, "get_device_name": "cpu", "device_count": 64,
        "set_device": None, "current_device": 0, "memory_reserved": 0, "get_device_capability": (0, 0),
        "get_device_properties": types.SimpleNamespace(total_memory=2**34),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cpu, name, lambda *_, answer=answer, **__: answer)
    torch.compile = lambda module=None, *_, **__: module if module is not None else (lambda inner: inner)


def attention() -> None:
    """Replaces FlexAttention, which has no backward pass on CPUs, by scaled dot product attention."""
    import torch.nn.attention.flex_attention as flex
    from torch.nn.functional import scaled_dot_product_attention

    def plain(
        query: Any, key: Any, value: Any, scale: Any = None, enable_gqa: bool = False, return_aux: Any = None, **_: Any
    ) -> Any:
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=enable_gqa)
        return out if return_aux is None else (out, flex.AuxOutput(lse=out.new_zeros(out.shape[:-1]), max_scores=None))

    flex.flex_attention = plain


def collectives() -> None:
    """Replaces what gloo lacks: a barrier with devices and scaled sums. torch 2.13 cannot change a group's timeout and may hang
    while it destroys gloo's groups, so a rank exits right after training.
    """
    import torch.distributed as dist
    from torch.distributed.fsdp import FSDPModule

    barrier, divide = dist.barrier, FSDPModule.set_gradient_divide_factor

    def summed(module: Any, factor: float) -> None:
        module.set_force_sum_reduction_for_comms(True)
        divide(module, factor)

    def leave(*_: Any, **__: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if sys.exc_info()[0] is None else 1)

    dist.destroy_process_group = leave
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group, async_op)
    dist.set_timeout = lambda *_, **__: None
    FSDPModule.set_gradient_divide_factor = summed


if "LOCAL_RANK" in os.environ:  # a rank, not the launcher
    sys.meta_path.insert(0, Absent())
    device()
    attention()
    collectives()
