"""A Llama-style decoder: grouped-query attention, rotary positions, SwiGLU, RMSNorm (arXiv 2302.13971, 2305.13245, 2104.09864).

Shapes: B sequences, T tokens, H hidden elements, N heads of this rank, D elements of a head, V tokens of the vocabulary.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime import compat

NORM_EPSILON = 1e-5


class Rotary:
    """Cosines and sines of the rotary positions, [T, D/2] each, always in fp32.

    Deliberately no tensor and no module: FSDP2 casts the tensors that it sees in a layer's arguments to bf16, which has too few
    digits for positions.
    """

    def __init__(self, seq_len: int, head_size: int, theta: float, device: torch.device) -> None:
        frequencies = theta ** -(torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size)
        angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos(), angles.sin()

    def turn(self, x: Tensor) -> Tensor:
        """``x`` [B, T, N, D] with each pair (i, i + D/2) turned by its position's angle."""
        first, second = x.float().chunk(2, dim=-1)
        cos, sin = self.cos[:, None, :], self.sin[:, None, :]
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


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


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden_size, shape.ffn_size, bias=False)
        self.up = nn.Linear(shape.hidden_size, shape.ffn_size, bias=False)
        self.down = nn.Linear(shape.ffn_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """One decoder layer, norms before."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPSILON)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """The whole model: tokens [B, T] to logits [B, T, V]. Build it on the meta device; ``rotary`` comes with the weights."""

    rotary: Rotary

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.tied = shape.tied_embeddings
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPSILON)
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.tie()

    def tie(self) -> None:
        """Makes the head share the embedding's weight, where the shape says so; again after each step that replaces parameters."""
        if self.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.rotary)
        return self.head(self.norm(x))

    def plain_names(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by the names that they have in a model without wrappers."""
        for name, parameter in self.named_parameters():
            yield name.replace("_checkpoint_wrapped_module.", ""), parameter
