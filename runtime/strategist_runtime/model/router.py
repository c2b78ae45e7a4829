"""Routing of tokens to experts, and the weights of their outputs: softmax (Mixtral, arXiv 2401.04088), or sigmoid in groups of
experts with a bias that affects the choice only (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).

Shapes: B sequences, T tokens, H hidden elements, E experts, K experts of a token.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.model.local_parameter import local_parameter
from strategist_runtime.model.loss_scale import LossScale

GROUP_SCORE_EXPERTS = 2
"""The score of a group of experts is the sum over this number of its best ones."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The ``experts`` of each token and their ``weights``, [B x T, K] each; ``counts`` [E] is the number of tokens of each
    expert.
    """

    experts: Tensor
    weights: Tensor
    counts: Tensor


class Router(nn.Module):
    """Chooses the K experts with the best scores for each token, in fp32.

    ``balance_loss``: factor of a micro-batch's auxiliary loss in the loss of the step; 0 turns it off. ``loss_scale``: that of
    the step's loss in fp16. ``sequence_groups``: process groups with the other tokens of the same sequences. ``balance_bias``
    and ``load`` (tokens of each expert since the last change of the bias) are buffers;
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
        """Routing of the tokens ``x`` [B, T, H]."""
        with torch.autocast(x.device.type, enabled=False):
            bias = None if self.bias is None else local_parameter(self.bias).float()
            logits = F.linear(x.float(), local_parameter(self.weight).float(), bias)
        counts_load = torch.is_grad_enabled()  # evaluation does not count towards the load
        scores = logits.sigmoid() if self.moe.router_score == "sigmoid" else logits.softmax(-1)
        with torch.no_grad():
            experts = self._choose_experts(scores + self.balance_bias)
            chosen = torch.zeros_like(scores).scatter_(-1, experts, 1.0)
            counts = chosen.sum((0, 1))
            if counts_load:
                self.load += counts
        weights = scores.gather(-1, experts)
        if self.moe.router_normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if self.balance_loss:
            loss = self._auxiliary_loss(scores, chosen) * self.balance_loss
            weights = AddAuxiliaryLoss.apply(weights, loss if self.loss_scale is None else self.loss_scale.scale_gradients(loss))
        return Routing(experts=experts.flatten(0, 1), weights=weights.flatten(0, 1) * self.moe.routed_scale, counts=counts.long())

    def move_balance_to(self, device: torch.device) -> None:
        """Moves ``balance_bias`` and ``load`` to ``device``, wherever the parameters are."""
        self.balance_bias, self.load = self.balance_bias.to(device), self.load.to(device)

    def _choose_experts(self, scores: Tensor) -> Tensor:
        """The best K experts, [B, T, K], of the best groups."""
        if self.moe.router_groups > 1:
            grouped = scores.unflatten(-1, (self.moe.router_groups, -1))
            group_scores = grouped.topk(min(GROUP_SCORE_EXPERTS, grouped.shape[-1]), dim=-1).values.sum(-1)
            best_groups = group_scores.topk(self.moe.router_groups_per_token, dim=-1, sorted=False).indices
            excluded = torch.ones_like(group_scores, dtype=torch.bool).scatter_(-1, best_groups, False)
            scores = grouped.masked_fill(excluded[..., None], -torch.inf).flatten(-2)
        return scores.topk(self.moe.experts_per_token, dim=-1, sorted=False).indices

    def _auxiliary_loss(self, scores: Tensor, chosen: Tensor) -> Tensor:
        """The auxiliary loss of arXiv 2412.19437, equations 17 to 20, mean over sequences; 1 if all experts have equal load.

        It is computed per sequence, so that it does not depend on how sequences are distributed over ranks and micro-batches. If
        this rank has a part of each sequence, loads are summed over ``sequence_groups``; the scores, a mean over the rank's own
        tokens, are its share.
        """
        with torch.no_grad():
            tokens = scores.shape[1]
            loads = chosen.sum(1)
            for group in self.sequence_groups:
                dist.all_reduce(loads, group=group)
                tokens *= group.size()
            load_shares = loads * (self.moe.experts / (self.moe.experts_per_token * tokens))
        probabilities = (scores / scores.sum(-1, keepdim=True)).mean(1)
        return (load_shares * probabilities).sum(-1).mean()


class AddAuxiliaryLoss(torch.autograd.Function):
    """Identity on ``x``; in the backward pass ``loss`` gets the gradient that it would have as a term of the step's loss."""

    @staticmethod
    def forward(context: Any, x: Tensor, loss: Tensor) -> Tensor:
        context.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = context.saved_tensors
        return gradient, torch.ones_like(loss)
