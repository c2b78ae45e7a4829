"""Dynamic loss scaling, which keeps small gradients in fp16 from becoming 0 (arXiv 1710.03740, section 3.2)."""

import math
from typing import Any

import torch
from torch import Tensor

INITIAL, GROWTH, BACKOFF, GROWTH_STEPS = 2.0**16, 2.0, 0.5, 2000
"""Defaults of torch.amp.GradScaler: initial scale, factors by which it grows and shrinks, and steps without overflow before it
grows.
"""

MIN_SCALE = 1.0
"""Smallest scale: a gradient that overflows at this scale has another cause (DeepSpeed: min_loss_scale)."""


class LossScale:
    """The factor on gradients in the backward pass.

    torch's GradScaler checks every gradient of this rank for infinities. Here the norm of the whole gradient, which all ranks
    compute anyway, shows the same, so all ranks decide alike however gradients are sharded.
    """

    def __init__(self) -> None:
        self.value = INITIAL
        self.good_steps = 0

    def scale_gradients(self, loss: Tensor) -> Tensor:
        """The loss with its value unchanged and its gradients scaled."""
        scaled: Tensor = _ScaledGradient.apply(loss, self.value)
        return scaled

    def update(self, grad_norm: float) -> bool:
        """Adapts the scale after a step with this gradient norm. True if the step overflowed and the scale could still be
        reduced; the step must then be skipped.
        """
        if math.isfinite(grad_norm):
            self.good_steps += 1
            if self.good_steps == GROWTH_STEPS:
                self.value, self.good_steps = self.value * GROWTH, 0
            return False
        can_shrink = self.value > MIN_SCALE
        self.value, self.good_steps = max(self.value * BACKOFF, MIN_SCALE), 0
        return can_shrink


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, loss: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return loss.clone()  # a view could not be detached in place, which zero-bubble schedules do

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * context.factor, None
