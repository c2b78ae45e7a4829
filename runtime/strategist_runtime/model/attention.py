"""Causal grouped-query attention (arXiv 2305.13245).

Shapes: B sequences, T tokens, N heads of this rank, D elements of a head.
"""

from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime import compat
from strategist_runtime.model.norms import NORM_EPSILON
from strategist_runtime.model.rotary import Rotary


class Attention(nn.Module):
    """Causal grouped-query attention over the heads of this rank."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_size = shape.head_size
        width, kv_width = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.query = nn.Linear(shape.hidden_size, width, bias=shape.qkv_bias)
        self.key = nn.Linear(shape.hidden_size, kv_width, bias=shape.qkv_bias)
        self.value = nn.Linear(shape.hidden_size, kv_width, bias=shape.qkv_bias)
        self.output = nn.Linear(width, shape.hidden_size, bias=False)
        self.query_norm = nn.RMSNorm(shape.head_size, eps=NORM_EPSILON) if shape.qk_norm else None
        self.key_norm = nn.RMSNorm(shape.head_size, eps=NORM_EPSILON) if shape.qk_norm else None

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (-1, self.head_size)) for part in (self.query(x), self.key(x), self.value(x))
        )  # [B, T, N, D]; under tensor parallelism N counts this rank's heads
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = rotary.turn(query), rotary.turn(key)
        mixed = compat.attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        return self.output(mixed.transpose(1, 2).flatten(2))
