"""Mixture of experts (arXiv 1701.06538): each token is routed to a few of many feed-forwards, and goes through the shared ones.

Shapes: B sequences, T tokens, H hidden elements, E experts of this rank, F intermediate elements of an expert, K experts of a
token, M rows, one for each pair of a token and an expert.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.compat.device import has_values
from strategist_runtime.compat.kernels import grouped_matmul
from strategist_runtime.model.feed_forward import ACTIVATIONS, FeedForward
from strategist_runtime.model.local_parameter import local_parameter
from strategist_runtime.model.router import Router

Combine = Callable[[Tensor], Tensor]
Dispatch = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Combine]]
"""Takes rows sorted by expert and the number of rows of each. Returns the rows of the local experts, their numbers, and the
function that returns the results to the ranks of their tokens.
"""


def host_counts(counts: Tensor, total: int) -> Any:
    """``counts`` on the host; their last dimension sums to ``total`` rows. In a simulation, where tensors have no values, all
    counts are equal: the real load of experts is unknown.
    """
    if has_values(counts):
        return counts.tolist()
    size = counts.shape[-1]
    even = [total // size + (index < total % size) for index in range(size)]
    return even if counts.dim() == 1 else [even] * len(counts)


def local_dispatch(rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Combine]:
    """The exchange of a rank that holds all experts."""
    return rows, counts, lambda results: results


class Experts(nn.Module):
    """The routed experts of this rank, with stacked matrices.

    ``grouped``: one kernel for all experts. ``alignment``: the rows of each expert are padded to a multiple of it.
    ``gradient_factor``: factor on gradients. ``ffn_shards``: number of ranks that each hold a part of every expert's intermediate
    size; their outputs are summed.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        assert shape.moe is not None
        experts, ffn_size, hidden_size = shape.moe.experts, shape.moe.expert_ffn_size, shape.hidden_size
        self.activation = ACTIVATIONS[shape.ffn_activation]
        self.gate = nn.Parameter(torch.empty(experts, ffn_size, hidden_size)) if shape.ffn_matrices == 3 else None
        self.up = nn.Parameter(torch.empty(experts, ffn_size, hidden_size))
        self.down = nn.Parameter(torch.empty(experts, hidden_size, ffn_size))
        has_bias, has_gate_bias = shape.ffn_bias, shape.ffn_bias and shape.ffn_matrices == 3
        self.gate_bias = nn.Parameter(torch.empty(experts, ffn_size)) if has_gate_bias else None
        self.up_bias = nn.Parameter(torch.empty(experts, ffn_size)) if has_bias else None
        self.down_bias = nn.Parameter(torch.empty(experts, hidden_size)) if has_bias else None
        self.grouped = False
        self.alignment = 1
        self.gradient_factor = 1.0
        self.ffn_shards = 1

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs [M, H] of the experts. ``rows`` [M, H] are sorted by expert; ``counts`` [E]: number of rows of each expert."""
        positions = None
        if self.alignment > 1:
            rows, counts, positions = _padded(rows, counts, self.alignment)
        use_grouped = self.grouped and len(rows) > 0  # torch 2.13's kernel has no gradient for zero rows
        multiply = partial(_matmul_grouped if use_grouped else _matmul_per_expert, counts=counts)
        up = multiply(rows, self._local_weight(self.up), bias=self._local_weight(self.up_bias))
        if self.gate is None:
            intermediate = self.activation(up)
        else:
            gate = multiply(rows, self._local_weight(self.gate), bias=self._local_weight(self.gate_bias))
            intermediate = self.activation(gate) * up
        bias = self._local_weight(self.down_bias)
        results = multiply(intermediate, self._local_weight(self.down), bias=None if bias is None else bias / self.ffn_shards)
        return results if positions is None else results.index_select(0, positions)

    @overload
    def _local_weight(self, parameter: Tensor) -> Tensor: ...

    @overload
    def _local_weight(self, parameter: None) -> None: ...

    def _local_weight(self, parameter: Tensor | None) -> Tensor | None:
        if parameter is None or self.gradient_factor == 1.0:
            return None if parameter is None else local_parameter(parameter)
        return _ScaledGradient.apply(local_parameter(parameter), self.gradient_factor)


class MixtureOfExperts(nn.Module):
    """A mixture of experts, [B, T, H] to [B, T, H], in layer ``index`` of the whole model.

    ``dispatch`` sends the rows of this rank's tokens to the ranks of their experts.
    """

    def __init__(self, shape: ModelShape, index: int) -> None:
        super().__init__()
        assert shape.moe is not None
        self.index = index
        shared_width = shape.moe.expert_ffn_size * shape.moe.shared_experts
        self.router = Router(shape)
        self.experts = Experts(shape)
        self.shared = FeedForward(shape, shared_width) if shared_width else None
        self.dispatch: Dispatch = local_dispatch

    def forward(self, x: Tensor) -> Tensor:
        routing = self.router(x)
        order = routing.experts.flatten().argsort(stable=True)  # sorts pairs of token and expert by expert
        rows = x.flatten(0, 1).index_select(0, order // routing.experts.shape[1])
        rows, counts, combine = self.dispatch(rows, routing.counts)
        results = combine(self.experts(rows, counts)).index_select(0, order.argsort())
        weighted = results.view(*routing.experts.shape, -1) * routing.weights[..., None].to(x.dtype)
        routed = weighted.sum(1).view_as(x)
        return routed if self.shared is None else routed + self.shared(x).view_as(x)


def _matmul_per_expert(rows: Tensor, weights: Tensor, *, counts: Tensor, bias: Tensor | None) -> Tensor:
    """[M, in] to [M, out] by ``weights`` [E, out, in]: a matmul for each expert, also for those without rows."""
    biases = [None] * len(weights) if bias is None else bias.unbind()
    parts = rows.split(host_counts(counts, len(rows)))
    return torch.cat([F.linear(*arguments) for arguments in zip(parts, weights.unbind(), biases, strict=True)])


def _matmul_grouped(rows: Tensor, weights: Tensor, *, counts: Tensor, bias: Tensor | None) -> Tensor:
    """[M, in] to [M, out] by ``weights`` [E, out, in] in one kernel."""
    results = grouped_matmul(rows, weights, counts.cumsum(0, dtype=torch.int32))
    return results if bias is None else results + bias.repeat_interleave(counts, dim=0, output_size=len(rows))


def _padded(rows: Tensor, counts: Tensor, alignment: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows, zero-padded so that each expert's begin at a multiple of ``alignment``; the padded counts; and the new place of
    each row.
    """
    padded_counts = (counts + alignment - 1) // alignment * alignment
    shift = (padded_counts - counts).cumsum(0) - (padded_counts - counts)
    positions = torch.arange(len(rows), device=rows.device) + shift.repeat_interleave(counts, output_size=len(rows))
    total = sum(-(-count // alignment) * alignment for count in host_counts(counts, len(rows)))
    return rows.new_zeros(total, rows.shape[1]).index_copy(0, positions, rows), padded_counts, positions


class _ScaledGradient(torch.autograd.Function):
    """Identity on a weight; multiplies its gradient by ``factor``."""

    @staticmethod
    def forward(context: Any, weight: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return weight.view_as(weight)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * context.factor, None
