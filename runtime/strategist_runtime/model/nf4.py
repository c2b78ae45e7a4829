"""Frozen weights in 4 bits: NormalFloat (QLoRA, arXiv 2305.14314, section 3 and appendix E).

A block of 64 weights of a row shares one constant, its largest magnitude; each weight is one of 16 levels times the constant.
The constants are quantised as well ("double quantisation"), to 8 bits between the smallest and the largest of their row. The
paper groups 256 constants instead; per-row groups let rows be sharded and gathered separately.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_SIZE = 64
LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
BYTE_VALUES = tuple((high, low) for high in LEVELS for low in LEVELS)
"""The two levels that each byte encodes, high half first."""

ROW_BYTES = 8
"""Two fp32 numbers per row: its smallest constant, and the quantisation step of its constants."""


def sizes(columns: int) -> dict[str, int]:
    """Bytes of a row in each of the three tensors that store a matrix."""
    return {"codes": columns // 2, "constants": columns // BLOCK_SIZE, "rows": ROW_BYTES}


def quantise(weight: Tensor) -> dict[str, Tensor]:
    """A matrix [R, C] as bytes: ``codes`` [R, C/2], two per byte; ``constants`` [R, C/64]; ``rows`` [R, 8], which restore the
    constants.
    """
    blocks = weight.float().unflatten(-1, (-1, BLOCK_SIZE))
    largest = blocks.abs().amax(-1)
    low, high = largest.aminmax(dim=-1, keepdim=True)
    step = (high - low) / 255
    constants = ((largest - low) / step.clamp_min(torch.finfo(torch.float32).tiny)).round().to(torch.uint8)
    levels = torch.tensor(LEVELS, device=weight.device)
    relative = (blocks / largest.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).flatten(-2)
    codes = torch.bucketize(relative, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)
    return {
        "codes": codes[..., 0::2] << 4 | codes[..., 1::2],
        "constants": constants,
        "rows": torch.cat((low, step), dim=-1).view(torch.uint8),
    }


def dequantise(codes: Tensor, constants: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The matrix [R, C] in ``dtype``; also for a shard of columns, if it consists of whole blocks."""
    can_pin = codes.is_cuda and not torch.compiler.is_compiling()  # a compiler makes the table a constant of the graph
    level_pairs = torch.tensor(BYTE_VALUES, pin_memory=can_pin)  # a copy from unpinned memory would wait for the device
    low, step = rows.view(torch.float32).unbind(-1)
    largest = low[:, None] + step[:, None] * constants
    relative = F.embedding(codes.int(), level_pairs.to(codes.device, non_blocking=True)).flatten(-2).unflatten(-1, (-1, BLOCK_SIZE))
    return (relative * largest[..., None]).flatten(-2).to(dtype)


class FrozenLinear(torch.autograd.Function):
    """``x W^T`` with a 4-bit W that each pass dequantises; only the 4-bit weight is saved for the backward pass."""

    @staticmethod
    def forward(context: Any, x: Tensor, codes: Tensor, constants: Tensor, rows: Tensor) -> Tensor:
        context.save_for_backward(codes, constants, rows)
        return F.linear(x, dequantise(codes, constants, rows, x.dtype))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        codes, constants, rows = context.saved_tensors
        return gradient @ dequantise(codes, constants, rows, gradient.dtype), None, None, None
