"""Frozen weights in 4 bits: NormalFloat (QLoRA, arXiv 2305.14314, section 3 and appendix E).

A block of 64 weights of a row shares one constant, its largest magnitude; each weight is one of 16 levels times that. Constants are
quantised in turn ("double quantisation"), to 8 bits between the least and the largest of their row, where the paper takes 256
constants together: so rows can be cut and gathered by themselves.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64
LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
PAIRS = tuple((high, low) for high in LEVELS for low in LEVELS)
"""What each byte of two codes stands for."""

ROW_BYTES = 8
"""Two fp32 a row: its least constant, and the step between two codes of a constant."""


def sizes(columns: int) -> dict[str, int]:
    """Bytes of a row in each of the three tensors that hold a matrix."""
    return {"codes": columns // 2, "constants": columns // BLOCK, "rows": ROW_BYTES}


def quantise(weight: Tensor) -> dict[str, Tensor]:
    """A matrix [R, C] as bytes: two codes each [R, C/2], constants [R, C/64], and what restores those [R, 8]."""
    blocks = weight.float().unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)
    low, high = largest.aminmax(dim=-1, keepdim=True)
    step = (high - low) / 255
    constants = ((largest - low) / step.clamp_min(torch.finfo(torch.float32).tiny)).round().to(torch.uint8)
    levels = torch.tensor(LEVELS, device=weight.device)
    share = (blocks / largest.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).flatten(-2)
    codes = torch.bucketize(share, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)
    return {
        "codes": codes[..., 0::2] << 4 | codes[..., 1::2],
        "constants": constants,
        "rows": torch.cat((low, step), dim=-1).view(torch.uint8),
    }


def dequantise(codes: Tensor, constants: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The matrix [R, C], rounded; any run of whole blocks of its columns is restored by itself."""
    at_once = codes.is_cuda and not torch.compiler.is_compiling()  # a compiler takes the table as a constant
    pairs = torch.tensor(PAIRS, pin_memory=at_once)  # a copy from other memory of the host waits for the device
    low, step = rows.view(torch.float32).unbind(-1)
    largest = low[:, None] + step[:, None] * constants
    shares = F.embedding(codes.int(), pairs.to(codes.device, non_blocking=True)).flatten(-2).unflatten(-1, (-1, BLOCK))
    return (shares * largest[..., None]).flatten(-2).to(dtype)


class FrozenLinear(torch.autograd.Function):
    """``x W^T`` with a 4-bit W, which is restored in each pass: what waits for the backward pass is the 4 bits."""

    @staticmethod
    def forward(context: Any, x: Tensor, codes: Tensor, constants: Tensor, rows: Tensor) -> Tensor:
        context.save_for_backward(codes, constants, rows)
        return F.linear(x, dequantise(codes, constants, rows, x.dtype))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        codes, constants, rows = context.saved_tensors
        return gradient @ dequantise(codes, constants, rows, gradient.dtype), None, None, None
