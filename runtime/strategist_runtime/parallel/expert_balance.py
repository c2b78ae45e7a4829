"""Load balance of experts: by a bias that affects routing only (arXiv 2408.15664), or by an auxiliary loss, which has the step's
loss scale.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from strategist.contract.plan import Plan
from strategist_runtime.model.loss_scale import LossScale
from strategist_runtime.parallel.experts import mixtures

BALANCE_RATE = 0.001
"""Change of an expert's bias in a step; the paper's best value."""


def scale_auxiliary_losses(parts: Iterable[nn.Module], scale: LossScale | None) -> None:
    """Gives auxiliary losses the loss scale of the step, since their gradients add to those of its loss."""
    for part in parts:
        for layer in mixtures(part):
            layer.router.loss_scale = scale


def balance_experts(optimizer: torch.optim.Optimizer, parts: Iterable[nn.Module], plan: Plan, device: torch.device) -> None:
    """Changes the balance biases after every optimizer step, by the loads of the step, if the plan balances by ``bias``.

    Loads are summed over all ranks, whatever layers and tokens these have. Ranks may count the same tokens, or count twice where
    a layer is recomputed: only the comparison with the mean matters.
    """
    if plan.model.moe is None or plan.candidate.options.expert_balance != "bias":
        return
    layers = {layer.index: layer.router for part in parts for layer in mixtures(part)}
    shape = (plan.model.layers, plan.model.moe.experts)

    @torch.no_grad()
    def update(*_: object) -> None:
        loads = torch.zeros(shape, device=device)
        for index, router in layers.items():
            loads[index] = router.load
            router.load.zero_()
        if dist.is_initialized():
            dist.all_reduce(loads)
        for index, router in layers.items():
            router.balance_bias += BALANCE_RATE * (loads[index].mean() - loads[index]).sign()

    optimizer.register_step_post_hook(update)
