import torch.nn.functional as F
from torch import nn


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202) with ``width`` intermediate elements."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.up = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.down = nn.Linear(width, HIDDEN_SIZE, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))
