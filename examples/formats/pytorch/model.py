"""A decoder like Llama's (arXiv 2302.13971), whole or a pipeline stage of it."""

import torch
import torch.nn.functional as F
from torch import nn

from plan import FFN_SIZE, HEADS, HEAD_SIZE, HIDDEN_SIZE, KV_HEADS, LAYERS, NORM_EPSILON, ROPE_THETA, VOCAB_SIZE


def rotate(x):
    """``x`` [B, T, heads, HEAD_SIZE] with pairs (i, i + HEAD_SIZE / 2) rotated by angles of their positions (arXiv 2104.09864)."""
    frequencies = ROPE_THETA ** -(torch.arange(0, HEAD_SIZE, 2, device=x.device, dtype=torch.float32) / HEAD_SIZE)
    angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), frequencies).unsqueeze(-2)
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention over the heads of this rank."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN_SIZE, HEADS * HEAD_SIZE, bias=False)
        self.key = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=False)
        self.value = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=False)
        self.output = nn.Linear(HEADS * HEAD_SIZE, HIDDEN_SIZE, bias=False)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (-1, HEAD_SIZE)) for part in (self.query(x), self.key(x), self.value(x)))
        query, key, value = (part.transpose(1, 2) for part in (rotate(query), rotate(key), value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=KV_HEADS < HEADS)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202) with ``width`` intermediate elements."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.up = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.down = nn.Linear(width, HIDDEN_SIZE, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.attention = Attention()
        self.feed_forward_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(FFN_SIZE)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE)
        self.layers = nn.ModuleDict({str(index): Layer() for index in range(LAYERS)})
        self.norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.head = nn.Linear(HIDDEN_SIZE, VOCAB_SIZE, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.norm(x))
