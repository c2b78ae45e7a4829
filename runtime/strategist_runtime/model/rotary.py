"""Rotary positions (arXiv 2104.09864), and their scaling to sequences longer than those of pretraining."""

import math
from copy import copy

import torch
from torch import Tensor

from strategist.contract.model import ModelShape, RopeScaling


class Rotary:
    """Cosines and sines of the rotary positions, [T, D/2] or [B, T, D/2] each, always in fp32.

    Deliberately no tensor and no module: FSDP2 casts the tensors among a layer's arguments to bf16, which is too imprecise for
    positions. ``interleaved``: a pair is two adjacent elements, otherwise (i, i + D/2).
    """

    def __init__(
        self,
        seq_len: int,
        head_size: int,
        theta: float,
        device: torch.device,
        scaling: RopeScaling | None = None,
        interleaved: bool = False,
    ) -> None:
        frequencies = theta ** -(torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size)
        if scaling is not None:
            frequencies = _scaled_frequencies(frequencies, head_size, theta, scaling)
        angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), frequencies)
        magnitude = _magnitude(scaling)
        self.cos, self.sin, self.interleaved = angles.cos() * magnitude, angles.sin() * magnitude, interleaved

    def at(self, positions: Tensor) -> "Rotary":
        """The tables of the tokens at ``positions``, [T] or [B, T]."""
        selected = copy(self)
        selected.cos, selected.sin = self.cos[positions], self.sin[positions]
        return selected

    def to(self, device: torch.device) -> "Rotary":
        """A copy of these tables on a device."""
        moved = copy(self)
        moved.cos, moved.sin = self.cos.to(device), self.sin.to(device)
        return moved

    def rotate(self, x: Tensor) -> Tensor:
        """``x`` [B, T, N, D] with each pair rotated by the angle of its position. Interleaved pairs are returned as halves;
        scores do not change, since queries and keys are permuted alike.
        """
        first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1) if self.interleaved else x.float().chunk(2, dim=-1)
        cos, sin = self.cos.unsqueeze(-2), self.sin.unsqueeze(-2)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


def rotary_of(shape: ModelShape, seq_len: int, device: torch.device) -> Rotary | None:
    """The tables of a shape; None if positions are learned. Models with latent attention (DeepSeek) use interleaved pairs, all
    others halves.
    """
    if shape.learned_positions:
        return None
    size = shape.mla.rope_head_size if shape.mla else shape.head_size
    return Rotary(seq_len, size, shape.rope_theta, device, shape.rope_scaling, interleaved=shape.mla is not None)


def score_correction(shape: ModelShape) -> float:
    """The factor on attention scores, besides 1 / sqrt(head size), of DeepSeek's models with YaRN scaling (arXiv 2405.04434,
    section 3.1.4).
    """
    scaling = shape.rope_scaling
    return _yarn_magnitude(scaling.factor, scaling.magnitude_all) ** 2 if scaling and scaling.magnitude_all else 1.0


def _yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """Equation 22 of arXiv 2309.00071, with a weight on its logarithm."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _magnitude(scaling: RopeScaling | None) -> float:
    """The factor on cosines and sines."""
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    if scaling.attention_factor:
        return scaling.attention_factor
    if scaling.magnitude and scaling.magnitude_all:
        return _yarn_magnitude(scaling.factor, scaling.magnitude) / _yarn_magnitude(scaling.factor, scaling.magnitude_all)
    return _yarn_magnitude(scaling.factor)


def _scaled_frequencies(frequencies: Tensor, head_size: int, theta: float, scaling: RopeScaling) -> Tensor:
    """Scaled frequencies [D/2]: high ones, with many turns over the original positions, stay; low ones are divided by the
    factor; those between are interpolated.
    """
    scaled = frequencies / scaling.factor
    if scaling.kind == "llama3":
        turns = scaling.original_positions * frequencies / (2 * math.pi)
        ramp = (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)
    elif scaling.kind == "yarn":
        first, last = (_dimension(turns, head_size, theta, scaling) for turns in (scaling.fast_turns, scaling.slow_turns))
        if scaling.whole_bounds:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, head_size - 1)
        pairs = torch.arange(head_size // 2, device=frequencies.device, dtype=torch.float32)
        ramp = 1 - (pairs - first) / max(last - first, 1e-3)
    else:
        return scaled
    ramp = ramp.clamp(0, 1)
    return scaled * (1 - ramp) + frequencies * ramp


def _dimension(turns: float, head_size: int, theta: float, scaling: RopeScaling) -> float:
    """The (fractional) pair that makes ``turns`` turns over the original positions (arXiv 2309.00071, section 3.2)."""
    return head_size * math.log(scaling.original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))
