"""The dense feed-forward: SwiGLU (arXiv 2002.05202), or two matrices with GELU (arXiv 1606.08415)."""

import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape


class FeedForward(nn.Module):
    """``width`` elements wide inside: the layer's own, or that of the experts that every token visits."""

    def __init__(self, shape: ModelShape, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden_size, width, bias=shape.ffn_bias) if shape.ffn_matrices == 3 else None
        self.up = nn.Linear(shape.hidden_size, width, bias=shape.ffn_bias)
        self.down = nn.Linear(width, shape.hidden_size, bias=shape.ffn_bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        return self.down(F.silu(self.gate(x)) * self.up(x))
