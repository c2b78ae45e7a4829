"""The learning rate of each step. It depends on the step number only, so a resumed training continues the same schedule."""

import math

import torch

from strategist.contract.measurement import TrialSettings

FIRST_LEARNING_RATE = "first_lr"


def learning_rate_share(settings: TrialSettings, step: int) -> float:
    """The factor on the learning rate in a step: rises linearly to 1 in the warm-up, stays 1 until the decay begins, then falls
    to the minimum along half a cosine (arXiv 1608.03983) or linearly (linear, wsd: arXiv 2404.06395).
    """
    warmup_steps, decay_steps = settings.learning_rate_warmup_steps, settings.decay_steps
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if settings.total_steps is None or not decay_steps:
        return 1.0
    progress = min(1.0, max(0.0, (step - settings.total_steps + decay_steps) / decay_steps))
    remaining = 0.5 * (1 + math.cos(math.pi * progress)) if settings.learning_rate_schedule == "cosine" else 1 - progress
    min_ratio = settings.learning_rate_min_ratio
    return min_ratio + (1 - min_ratio) * remaining


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrialSettings, step: int) -> None:
    """Sets the learning rates before a step; parameter groups with different initial rates keep their ratios."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault(FIRST_LEARNING_RATE, group["lr"]) * learning_rate_share(settings, step)
