"""A Llama-style decoder: grouped-query attention, rotary positions, SwiGLU, RMSNorm (arXiv 2302.13971, 2305.13245, 2104.09864).

Shapes: B sequences, T tokens, H hidden elements, N heads of this rank, D elements of a head, V tokens of the vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one stage holds of a model: ``layers``, and at its ends the embedding, or the last norm and the head."""

    layers: range
    embedding: bool = True
    head: bool = True


class Decoder(nn.Module):
    """The model, or a stage of it: tokens [B, T] (hidden [B, T, H] after the first stage) to logits [B, T, V] (hidden before the
    last one). Build it on the meta device; ``rotary`` comes with the weights. Names are those of the whole model.

    ``arithmetic`` gives the context in which the forward pass computes.
    """

    rotary: Rotary

    def __init__(self, shape: ModelShape, piece: Piece | None = None) -> None:
        super().__init__()
        self.piece = piece or Piece(layers=range(shape.layers))
        self.tied = shape.tied_embeddings
        self.arithmetic: Callable[[], AbstractContextManager[None]] = nullcontext
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size) if self.piece.embedding else None
        self.layers = nn.ModuleDict({str(index): Layer(shape) for index in self.piece.layers})
        self.norm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPSILON) if self.piece.head else None
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False) if self.piece.head else None
        self.tie()

    def tie(self) -> None:
        """Makes the head share the embedding's weight, where the shape says so and both are here; again after each step that
        replaces parameters."""
        if self.tied and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        with self.arithmetic():
            if self.embedding is not None:
                x = self.embedding(x)
            for layer in self.layers.values():
                x = layer(x, self.rotary)
            return x if self.norm is None or self.head is None else self.head(self.norm(x))


def plain_names(parts: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of all parts of a model by the names that they have in a whole one without wrappers."""
    for part in parts:
        for name, parameter in part.named_parameters():
            yield name.removeprefix("module.").replace("_checkpoint_wrapped_module.", ""), parameter
