"""The learning rate of each step, a function of the step alone, so that a resumed training has it too."""

import math

import torch

from strategist.contract.measurement import TrialSettings

FIRST = "first_lr"


def learning_rate_share(settings: TrialSettings, step: int) -> float:
    """What of the learning rate holds in a step: a line up to 1, then 1, or half a cosine down to 0 (arXiv 1608.03983)."""
    rising = settings.learning_rate_warmup_steps
    if step < rising:
        return (step + 1) / rising
    if settings.learning_rate_schedule == "constant" or settings.total_steps is None:
        return 1.0
    done = (step - rising) / max(1, settings.total_steps - rising)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrialSettings, step: int) -> None:
    """Before the step; groups that began with rates of their own keep their ratios."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault(FIRST, group["lr"]) * learning_rate_share(settings, step)
