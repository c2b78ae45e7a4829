import math

import torch
import torch.nn.functional as F
from torch import nn


# if: cp
def rotate(x, positions):
# end: cp
# if: not cp
def rotate(x):
# end: not cp
    """``x`` [B, T, heads, HEAD_SIZE] with pairs (i, i + HEAD_SIZE / 2) rotated by angles of their positions (arXiv 2104.09864)."""
    frequencies = ROPE_THETA ** -(torch.arange(0, HEAD_SIZE, 2, device=x.device, dtype=torch.float32) / HEAD_SIZE)
    # if: rope_scaling
    turns = ROPE_SCALING["original_positions"] * frequencies / (2 * math.pi)
    low, high = ROPE_SCALING["low_frequency"], ROPE_SCALING["high_frequency"]
    ramp = ((turns - low) / (high - low)).clamp(0, 1)
    frequencies = ramp * frequencies + (1 - ramp) * frequencies / ROPE_SCALING["factor"]
    # end: rope_scaling
    # if: cp
    angles = torch.outer(positions.float(), frequencies).unsqueeze(-2)
    # end: cp
    # if: not cp
    angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), frequencies).unsqueeze(-2)
    # end: not cp
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention over the heads of this rank."""

    def __init__(self):
        super().__init__()
        # if: qkv_bias
        self.query = nn.Linear(HIDDEN_SIZE, HEADS * HEAD_SIZE, bias=True)
        self.key = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=True)
        self.value = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=True)
        # end: qkv_bias
        # if: not qkv_bias
        self.query = nn.Linear(HIDDEN_SIZE, HEADS * HEAD_SIZE, bias=False)
        self.key = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=False)
        self.value = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=False)
        # end: not qkv_bias
        self.output = nn.Linear(HEADS * HEAD_SIZE, HIDDEN_SIZE, bias=False)
        # if: qk_norm
        self.query_norm = nn.RMSNorm(HEAD_SIZE, eps=NORM_EPSILON)
        self.key_norm = nn.RMSNorm(HEAD_SIZE, eps=NORM_EPSILON)
        # end: qk_norm

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (-1, HEAD_SIZE)) for part in (self.query(x), self.key(x), self.value(x)))
        # if: qk_norm
        query, key = self.query_norm(query), self.key_norm(key)
        # end: qk_norm
        # if: cp
        query, key = rotate(query, self.positions), rotate(key, self.positions)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        # end: cp
        # if: not cp
        query, key, value = (part.transpose(1, 2) for part in (rotate(query), rotate(key), value))
        # end: not cp
        # if: cp_gathered
        mixed = self.attend(query, key, value)
        # end: cp_gathered
        # if: not cp_gathered
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=KV_HEADS < HEADS)
        # end: not cp_gathered
        return self.output(mixed.transpose(1, 2).flatten(2))
