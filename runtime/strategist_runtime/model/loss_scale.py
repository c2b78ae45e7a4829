"""Dynamic loss scaling, which keeps small gradients in fp16 from becoming 0 (arXiv 1710.03740, section 3.2)."""

import math
from typing import Any

import torch
from torch import Tensor

INITIAL, GROWTH, BACKOFF, GROWTH_STEPS = 2.0**16, 2.0, 0.5, 2000
"""Defaults of torch.amp.GradScaler: the first scale, by what it grows and shrinks, and steps without overflow until it grows."""

LEAST = 1.0
"""A gradient that overflows at this scale is no matter of scaling (DeepSpeed: min_loss_scale)."""


class LossScale:
    """By what gradients are multiplied in the backward pass.

    torch's GradScaler reads every gradient to look for infinities, and sees those of this rank. The norm of the whole gradient,
    which all ranks know anyway, tells the same, so they decide alike wherever its pieces lie.
    """

    def __init__(self) -> None:
        self.value = INITIAL
        self.good_steps = 0

    def applied(self, loss: Tensor) -> Tensor:
        """The loss as it is, whose gradients are scaled."""
        scaled: Tensor = _Scaled.apply(loss, self.value)
        return scaled

    def update(self, grad_norm: float) -> bool:
        """After a step with this norm: whether it overflowed, at a scale that could still be smaller; the step is then skipped."""
        if math.isfinite(grad_norm):
            self.good_steps += 1
            if self.good_steps == GROWTH_STEPS:
                self.value, self.good_steps = self.value * GROWTH, 0
            return False
        spare = self.value > LEAST
        self.value, self.good_steps = max(self.value * BACKOFF, LEAST), 0
        return spare


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, loss: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return loss.clone()  # a view could not be detached in place, which zero-bubble schedules do

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * context.factor, None
