"""Balance of experts: by a bias that steers the choice only (arXiv 2408.15664), or by an auxiliary loss, scaled as the other is."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from strategist.contract.plan import Plan
from strategist_runtime.model.loss_scale import LossScale
from strategist_runtime.parallel.experts import mixtures

BALANCE_RATE = 0.001
"""By how much the bias of an expert changes in a step; the paper's best."""


def scale_auxiliary_losses(parts: Iterable[nn.Module], scale: LossScale | None) -> None:
    """Their gradients add to those of the step's loss, so all have the same scale."""
    for part in parts:
        for layer in mixtures(part):
            layer.router.loss_scale = scale


def balance_experts(optimizer: torch.optim.Optimizer, parts: Iterable[nn.Module], plan: Plan, device: torch.device) -> None:
    """Where the plan balances by biases, has them changed after every step of the optimizer, by how the step's tokens chose.

    All ranks together count the visits, whichever layers and tokens they have; that some count the same tokens, or twice where a
    layer is computed again, is no matter, since only more or less than the mean counts.
    """
    if plan.model.moe is None or plan.candidate.options.expert_balance != "bias":
        return
    layers = {layer.index: layer.router for part in parts for layer in mixtures(part)}
    size = (plan.model.layers, plan.model.moe.experts)

    @torch.no_grad()
    def update(*_: object) -> None:
        visits = torch.zeros(size, device=device)
        for index, router in layers.items():
            visits[index] = router.load
            router.load.zero_()
        if dist.is_initialized():
            dist.all_reduce(visits)
        for index, router in layers.items():
            router.balance_bias += BALANCE_RATE * (visits[index].mean() - visits[index]).sign()

    optimizer.register_step_post_hook(update)
