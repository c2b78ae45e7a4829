"""Norms before the blocks: RMSNorm (arXiv 1910.07467) or LayerNorm (arXiv 1607.06450)."""

from torch import nn

from strategist.contract.model import ModelShape


def norm_of(shape: ModelShape) -> nn.Module:
    """The norm over hidden states of this shape."""
    if shape.norm == "layer":
        return nn.LayerNorm(shape.hidden_size, eps=shape.norm_epsilon, bias=shape.norm_bias)
    return nn.RMSNorm(shape.hidden_size, eps=shape.norm_epsilon)
