"""One layer of a decoder: attention, and the layer's feed-forward (dense, or a mixture of experts)."""

from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.model.attention import Attention
from strategist_runtime.model.attention_metadata import AttentionMetadata
from strategist_runtime.model.experts import MixtureOfExperts
from strategist_runtime.model.feed_forward import FeedForward
from strategist_runtime.model.latent_attention import LatentAttention
from strategist_runtime.model.norms import norm_of


def feed_forward_of(shape: ModelShape, index: int) -> nn.Module:
    """The feed-forward of layer ``index`` of the whole model."""
    dense = shape.moe is None or index < shape.moe.first_dense_layers
    return FeedForward(shape, shape.ffn_size) if dense else MixtureOfExperts(shape, index)


class Layer(nn.Module):
    """One decoder layer with pre-normalisation."""

    def __init__(self, shape: ModelShape, index: int) -> None:
        super().__init__()
        self.attention_norm = norm_of(shape)
        self.attention = Attention(shape, index) if shape.mla is None else LatentAttention(shape)
        self.feed_forward_norm = norm_of(shape)
        self.feed_forward = feed_forward_of(shape, index)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        x = x + self.attention(self.attention_norm(x), metadata)
        return x + self.feed_forward(self.feed_forward_norm(x))
