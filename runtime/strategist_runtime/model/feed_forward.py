"""The dense feed-forward: gated (SwiGLU, arXiv 2002.05202), or two matrices with GELU between them (arXiv 1606.08415)."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),  # arXiv 2109.08668
}


class FeedForward(nn.Module):
    """A feed-forward with ``width`` intermediate elements: that of a dense layer, or the shared experts of a mixture."""

    def __init__(self, shape: ModelShape, width: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[shape.ffn_activation]
        self.gate = nn.Linear(shape.hidden_size, width, bias=shape.ffn_bias) if shape.ffn_matrices == 3 else None
        self.up = nn.Linear(shape.hidden_size, width, bias=shape.ffn_bias)
        self.down = nn.Linear(width, shape.hidden_size, bias=shape.ffn_bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))
