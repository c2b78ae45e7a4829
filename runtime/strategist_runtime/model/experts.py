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
from strategist_runtime.model.plain_matmul import local_parameter
from strategist_runtime.model.router import Router

Home = Callable[[Tensor], Tensor]
Exchange = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Home]]
"""Takes rows sorted by expert and the number of rows of each. Returns the rows of the local experts, their numbers, and the
function that returns the results to the ranks of their tokens.
"""


def host_counts(counts: Tensor, total: int) -> Any:
    """``counts`` on the host; their last dimension sums to ``total`` rows. In a simulation, where tensors have no values, all
    counts are equal: the real load of experts is unknown.
    """
    if has_values(counts):
        return counts.tolist()
    places = counts.shape[-1]
    even = [total // places + (place < total % places) for place in range(places)]
    return even if counts.dim() == 1 else [even] * len(counts)


def local_exchange(rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Home]:
    """The exchange of a rank that holds all experts."""
    return rows, counts, lambda results: results


class Experts(nn.Module):
    """The routed experts of this rank, with stacked matrices.

    ``grouped``: one kernel for all experts. ``alignment``: the rows of each expert are padded to a multiple of it.
    ``gradient_factor``: factor on gradients. ``pieces``: number of ranks that each hold a part of every expert's intermediate
    size; their outputs are summed.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        assert shape.moe is not None
        experts, inside, hidden = shape.moe.experts, shape.moe.expert_ffn_size, shape.hidden_size
        self.activation = ACTIVATIONS[shape.ffn_activation]
        self.gate = nn.Parameter(torch.empty(experts, inside, hidden)) if shape.ffn_matrices == 3 else None
        self.up = nn.Parameter(torch.empty(experts, inside, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, inside))
        biased, gated = shape.ffn_bias, shape.ffn_bias and shape.ffn_matrices == 3
        self.gate_bias = nn.Parameter(torch.empty(experts, inside)) if gated else None
        self.up_bias = nn.Parameter(torch.empty(experts, inside)) if biased else None
        self.down_bias = nn.Parameter(torch.empty(experts, hidden)) if biased else None
        self.grouped = False
        self.alignment = 1
        self.gradient_factor = 1.0
        self.pieces = 1

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """``rows`` [M, H], sorted by expert; ``counts`` [E] is the number of rows of each."""
        places = None
        if self.alignment > 1:
            rows, counts, places = _padded(rows, counts, self.alignment)
        together = self.grouped and len(rows) > 0  # torch 2.13's kernel has no gradient for zero rows
        multiply = partial(_grouped if together else _one_by_one, counts=counts)
        up = multiply(rows, self._held(self.up), bias=self._held(self.up_bias))
        if self.gate is None:
            inside = self.activation(up)
        else:
            inside = self.activation(multiply(rows, self._held(self.gate), bias=self._held(self.gate_bias))) * up
        bias = self._held(self.down_bias)
        results = multiply(inside, self._held(self.down), bias=None if bias is None else bias / self.pieces)
        return results if places is None else results.index_select(0, places)

    @overload
    def _held(self, parameter: Tensor) -> Tensor: ...

    @overload
    def _held(self, parameter: None) -> None: ...

    def _held(self, parameter: Tensor | None) -> Tensor | None:
        if parameter is None or self.gradient_factor == 1.0:
            return None if parameter is None else local_parameter(parameter)
        return _WithFactor.apply(local_parameter(parameter), self.gradient_factor)


class MixtureOfExperts(nn.Module):
    """A mixture of experts, [B, T, H] to [B, T, H], in layer ``index`` of the whole model.

    ``exchange`` sends the rows of this rank's tokens to the ranks of their experts.
    """

    def __init__(self, shape: ModelShape, index: int) -> None:
        super().__init__()
        assert shape.moe is not None
        self.index = index
        width = shape.moe.expert_ffn_size * shape.moe.shared_experts
        self.router = Router(shape)
        self.experts = Experts(shape)
        self.shared = FeedForward(shape, width) if width else None
        self.exchange: Exchange = local_exchange

    def forward(self, x: Tensor) -> Tensor:
        routing = self.router(x)
        order = routing.experts.flatten().argsort(stable=True)  # sorts pairs of token and expert by expert
        rows = x.flatten(0, 1).index_select(0, order // routing.experts.shape[1])
        rows, counts, home = self.exchange(rows, routing.counts)
        results = home(self.experts(rows, counts)).index_select(0, order.argsort())
        weighted = results.view(*routing.experts.shape, -1) * routing.weights[..., None].to(x.dtype)
        routed = weighted.sum(1).view_as(x)
        return routed if self.shared is None else routed + self.shared(x).view_as(x)


def _one_by_one(rows: Tensor, weights: Tensor, *, counts: Tensor, bias: Tensor | None) -> Tensor:
    """[M, in] to [M, out] by ``weights`` [E, out, in]: a matmul for each expert, also for those without rows."""
    biases = [None] * len(weights) if bias is None else bias.unbind()
    parts = rows.split(host_counts(counts, len(rows)))
    return torch.cat([F.linear(part, weight, of_one) for part, weight, of_one in zip(parts, weights.unbind(), biases, strict=True)])


def _grouped(rows: Tensor, weights: Tensor, *, counts: Tensor, bias: Tensor | None) -> Tensor:
    """[M, in] to [M, out] by ``weights`` [E, out, in] in one kernel."""
    results = grouped_matmul(rows, weights, counts.cumsum(0, dtype=torch.int32))
    return results if bias is None else results + bias.repeat_interleave(counts, dim=0, output_size=len(rows))


def _padded(rows: Tensor, counts: Tensor, alignment: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows, zero-padded so that each expert's begin at a multiple of ``alignment``; the padded counts; and the new place of
    each row.
    """
    wanted = (counts + alignment - 1) // alignment * alignment
    shift = (wanted - counts).cumsum(0) - (wanted - counts)
    places = torch.arange(len(rows), device=rows.device) + shift.repeat_interleave(counts, output_size=len(rows))
    total = sum(-(-count // alignment) * alignment for count in host_counts(counts, len(rows)))
    return rows.new_zeros(total, rows.shape[1]).index_copy(0, places, rows), wanted, places


class _WithFactor(torch.autograd.Function):
    """Identity on a weight; multiplies its gradient by ``factor``."""

    @staticmethod
    def forward(context: Any, weight: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return weight.view_as(weight)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * context.factor, None
