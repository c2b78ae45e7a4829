"""Fused kernels behind one function each, where torch has several or a private one."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor

ROW_ELEMENTS = 2**12


def fused_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention, [B, N, T, D]; ``key`` and ``value`` may have fewer heads.

    The only fused CUDA kernel for fp32 (memory-efficient) does not support grouped queries, so heads are repeated for it.
    """
    grouped = query.shape[1] != key.shape[1]
    if grouped and query.is_cuda and query.dtype == torch.float32:
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        grouped = False
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


def grouped_matmul(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """[M, in] to [M, out] by ``weights`` [E, out, in] in one kernel; ``ends`` [E] (int32) is the row after the last of each matrix.

    Autocast ignores this kernel, so the cast is made here.
    """
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        rows, weights = rows.to(dtype), weights.to(dtype)
    return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)


def scaled_matmul(rows: Tensor, weight: Tensor) -> Tensor:
    """[M, in] times [out, in], both float8 with scale 1; the result is bf16."""
    unit_scale = torch.ones((), device=rows.device)
    return torch._scaled_mm(rows, weight.t(), scale_a=unit_scale, scale_b=unit_scale, out_dtype=torch.bfloat16, use_fast_accum=True)


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Mixed precision for a model without FSDP: matmuls in ``dtype``, parameters unchanged."""
    return torch.autocast(device.type, dtype)


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each tensor, in fp32."""
    if tensors[0].device.type == "cpu":
        return torch.stack([_host_norm(tensor.reshape(-1)) for tensor in tensors])
    return torch.stack(torch._foreach_norm(list(tensors), 2, dtype=torch.float32))


def _host_norm(values: Tensor) -> Tensor:
    """The norm of a vector in host memory, row by row. For a whole vector torch sums the squares in one thread (10 GB/s on any
    host) and in one fp32 number, which is 1 % too small for 10^8 elements.
    """
    row_elements = values.numel() // ROW_ELEMENTS * ROW_ELEMENTS
    rows = torch.linalg.vector_norm(values[:row_elements].view(-1, ROW_ELEMENTS), dim=1, dtype=torch.float32)
    rest = torch.linalg.vector_norm(values[row_elements:], dtype=torch.float32)
    return torch.cat((rows, rest[None])).double().norm().float()


def multiply(tensors: Sequence[Tensor], factor: float) -> None:
    """Multiplies each tensor by a factor, in place."""
    torch._foreach_mul_(list(tensors), factor)


def copy(targets: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copies each tensor into its target, with a cast if types differ."""
    torch._foreach_copy_(list(targets), list(tensors))
