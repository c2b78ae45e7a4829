"""The learning rate of each step, a function of the step alone, so that a resumed training has it too."""

import math

import torch

from strategist.contract.measurement import TrialSettings

FIRST = "first_lr"


def learning_rate_share(settings: TrialSettings, step: int) -> float:
    """Share of the learning rate that holds in a step: a line up to 1 in the warm-up, 1 until the decay begins, then half a cosine
    (arXiv 1608.03983) or a line (linear, wsd: arXiv 2404.06395) down to the minimum."""
    rising, falling = settings.learning_rate_warmup_steps, settings.decay_steps
    if step < rising:
        return (step + 1) / rising
    if settings.total_steps is None or not falling:
        return 1.0
    done = min(1.0, max(0.0, (step - settings.total_steps + falling) / falling))
    left = 0.5 * (1 + math.cos(math.pi * done)) if settings.learning_rate_schedule == "cosine" else 1 - done
    least = settings.learning_rate_min_ratio
    return least + (1 - least) * left


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrialSettings, step: int) -> None:
    """Before the step; groups that began with rates of their own keep their ratios."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault(FIRST, group["lr"]) * learning_rate_share(settings, step)
