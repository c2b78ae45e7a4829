"""Causal grouped-query attention (arXiv 2305.13245).

Shapes: B sequences, T tokens, N heads of this rank, D elements of a head.
"""

from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.compat.context import Mask, masked_attention
from strategist_runtime.compat.kernels import fused_attention
from strategist_runtime.model.attention_metadata import AttentionMetadata
from strategist_runtime.model.attention_sinks import SinkCore


class Core(nn.Module):
    """Attention without the matmuls around it: the module that context parallelism distributes. It has no parameters."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None = None) -> Tensor:
        """[B, N, T, D]; causal if there is no mask."""
        return fused_attention(query, key, value) if mask is None else masked_attention(query, key, value, mask)


class Attention(nn.Module):
    """Causal grouped-query attention over the heads of this rank."""

    def __init__(self, shape: ModelShape, index: int) -> None:
        super().__init__()
        self.head_size, self.has_window = shape.head_size, shape.window(index) > 0
        width, kv_width = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.query = nn.Linear(shape.hidden_size, width, bias=shape.qkv_bias)
        self.key = nn.Linear(shape.hidden_size, kv_width, bias=shape.qkv_bias)
        self.value = nn.Linear(shape.hidden_size, kv_width, bias=shape.qkv_bias)
        self.output = nn.Linear(width, shape.hidden_size, bias=shape.output_bias)
        self.core = SinkCore(shape.heads) if shape.attention_sinks else Core()
        self.query_norm = nn.RMSNorm(shape.head_size, eps=shape.norm_epsilon) if shape.qk_norm else None
        self.key_norm = nn.RMSNorm(shape.head_size, eps=shape.norm_epsilon) if shape.qk_norm else None

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (-1, self.head_size)) for part in (self.query(x), self.key(x), self.value(x))
        )  # [B, T, N, D]; under tensor parallelism N is the number of this rank's heads
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if metadata.rotary is not None:
            query, key = metadata.rotary.rotate(query), metadata.rotary.rotate(key)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        mixed = self.core(query, key, value, metadata.window_mask if self.has_window else metadata.mask)
        return self.output(mixed.transpose(1, 2).flatten(2))
