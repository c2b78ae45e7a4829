"""Rotary positions (arXiv 2104.09864)."""

from copy import copy

import torch
from torch import Tensor


class Rotary:
    """Cosines and sines of the rotary positions, [T, D/2] or [B, T, D/2] each, always in fp32.

    Deliberately no tensor and no module: FSDP2 casts the tensors that it sees in a layer's arguments to bf16, which has too few
    digits for positions.
    """

    def __init__(self, seq_len: int, head_size: int, theta: float, device: torch.device) -> None:
        frequencies = theta ** -(torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size)
        angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos(), angles.sin()

    def at(self, positions: Tensor) -> "Rotary":
        """The tables of the tokens at ``positions``, [T] or [B, T]."""
        there = copy(self)
        there.cos, there.sin = self.cos[positions], self.sin[positions]
        return there

    def on(self, device: torch.device) -> "Rotary":
        """The same tables on a device."""
        self.cos, self.sin = self.cos.to(device), self.sin.to(device)
        return self

    def turn(self, x: Tensor) -> Tensor:
        """``x`` [B, T, N, D] with each pair (i, i + D/2) turned by its position's angle."""
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = self.cos.unsqueeze(-2), self.sin.unsqueeze(-2)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)
