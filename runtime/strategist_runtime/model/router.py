"""Which experts a token visits and what each says: softmax (Mixtral, arXiv 2401.04088), or sigmoid in groups of experts with a bias
that only steers the choice (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).

Shapes: B sequences, T tokens, H hidden elements, E experts, K experts of a token.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.model.loss_scale import LossScale
from strategist_runtime.model.plain_matmul import local_parameter

BEST_OF_GROUP = 2
"""A group of experts is as good as its so many best ones together."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The experts of each token and their weights in its sum, [B x T, K] each; ``counts`` [E] is how many tokens visit each."""

    experts: Tensor
    weights: Tensor
    counts: Tensor


class Router(nn.Module):
    """Scores in fp32, the best K.

    ``balance_loss`` is what the auxiliary loss of a micro-batch counts in the loss of a step; 0 leaves it out. ``loss_scale`` is
    that of the step's loss in fp16. ``sequence_groups`` hold the other tokens of the same sequences. ``balance_bias`` and ``load``,
    the visits of each expert since it was last changed, are no parameters:
    ``strategist_runtime.parallel.expert_balance`` changes them.
    """

    balance_bias: Tensor
    load: Tensor

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        assert shape.moe is not None
        self.moe = moe = shape.moe
        self.weight = nn.Parameter(torch.empty(moe.experts, shape.hidden_size))
        self.bias = nn.Parameter(torch.empty(moe.experts)) if moe.router_parameter_bias else None
        self.register_buffer("balance_bias", torch.zeros(moe.experts))
        self.register_buffer("load", torch.zeros(moe.experts), persistent=False)
        self.balance_loss = 0.0
        self.loss_scale: LossScale | None = None
        self.sequence_groups: tuple[dist.ProcessGroup, ...] = ()

    def forward(self, x: Tensor) -> Routing:
        """``x`` [B, T, H]."""
        with torch.autocast(x.device.type, enabled=False):
            bias = None if self.bias is None else local_parameter(self.bias).float()
            logits = F.linear(x.float(), local_parameter(self.weight).float(), bias)
        learns = torch.is_grad_enabled()  # an evaluation is not counted
        scores = logits.sigmoid() if self.moe.router_score == "sigmoid" else logits.softmax(-1)
        with torch.no_grad():
            experts = self._chosen(scores + self.balance_bias)
            visits = torch.zeros_like(scores).scatter_(-1, experts, 1.0)
            counts = visits.sum((0, 1))
            if learns:
                self.load += counts
        weights = scores.gather(-1, experts)
        if self.moe.router_normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if self.balance_loss:
            loss = self._unbalance(scores, visits) * self.balance_loss
            weights = AddAuxiliaryLoss.apply(weights, loss if self.loss_scale is None else self.loss_scale.applied(loss))
        return Routing(experts=experts.flatten(0, 1), weights=weights.flatten(0, 1) * self.moe.routed_scale, counts=counts.long())

    def hold_balance_on(self, device: torch.device) -> None:
        """What routing counts and is steered by lives on ``device``, wherever the parameters do."""
        self.balance_bias, self.load = self.balance_bias.to(device), self.load.to(device)

    def _chosen(self, scores: Tensor) -> Tensor:
        """The best K, [B, T, K], among those of the best groups."""
        if self.moe.router_groups > 1:
            grouped = scores.unflatten(-1, (self.moe.router_groups, -1))
            best = grouped.topk(min(BEST_OF_GROUP, grouped.shape[-1]), dim=-1).values.sum(-1)
            kept = best.topk(self.moe.router_groups_per_token, dim=-1, sorted=False).indices
            barred = torch.ones_like(best, dtype=torch.bool).scatter_(-1, kept, False)
            scores = grouped.masked_fill(barred[..., None], -torch.inf).flatten(-2)
        return scores.topk(self.moe.experts_per_token, dim=-1, sorted=False).indices

    def _unbalance(self, scores: Tensor, visits: Tensor) -> Tensor:
        """The auxiliary loss of arXiv 2412.19437, equations 17 to 20, mean over sequences: 1 where all experts are visited alike.

        Of each sequence for itself, so that it is the same however sequences are dealt to ranks and micro-batches. Where this rank
        has a part of each, the visits are summed over the others, and the scores, a mean over its own tokens, are its share.
        """
        with torch.no_grad():
            tokens = scores.shape[1]
            visited = visits.sum(1)
            for group in self.sequence_groups:
                dist.all_reduce(visited, group=group)
                tokens *= group.size()
            shares = visited * (self.moe.experts / (self.moe.experts_per_token * tokens))
        likely = (scores / scores.sum(-1, keepdim=True)).mean(1)
        return (shares * likely).sum(-1).mean()


class AddAuxiliaryLoss(torch.autograd.Function):
    """Identity on ``x``; in the backward pass ``loss`` has a gradient as if it had been added to the loss of the step."""

    @staticmethod
    def forward(context: Any, x: Tensor, loss: Tensor) -> Tensor:
        context.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = context.saved_tensors
        return gradient, torch.ones_like(loss)
