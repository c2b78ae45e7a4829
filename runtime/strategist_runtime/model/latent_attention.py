"""Multi-head latent attention: keys and values of all heads are projected from one latent (arXiv 2405.04434, section 2.1).

Shapes: B sequences, T tokens, N heads of this rank.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.compat.dtensor import local_share
from strategist_runtime.model.attention import Core
from strategist_runtime.model.attention_metadata import AttentionMetadata
from strategist_runtime.model.rotary import score_correction

LATENT_EPSILON = 1e-6
"""Epsilon of the norms of latents, independent of the model's other norms (modeling_deepseek.py of deepseek-ai/DeepSeek-V3)."""


class LatentAttention(nn.Module):
    """Causal latent attention over the heads of this rank.

    The queries and keys of a head have a part without positions, then a rotary part; all heads share the keys' rotary part.
    Under tensor parallelism latents are replicated.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        assert shape.mla is not None
        sizes = self.sizes = shape.mla
        self.correction = score_correction(shape)
        rank, heads = sizes.query_rank, shape.heads
        self.query_down = nn.Linear(shape.hidden_size, rank, bias=False) if rank else None
        self.query_norm = nn.RMSNorm(rank, eps=LATENT_EPSILON) if rank else None
        self.query = nn.Linear(rank or shape.hidden_size, heads * (sizes.nope_head_size + sizes.rope_head_size), bias=False)
        self.latent = nn.Linear(shape.hidden_size, sizes.key_value_rank + sizes.rope_head_size, bias=False)
        self.latent_norm = nn.RMSNorm(sizes.key_value_rank, eps=LATENT_EPSILON)
        self.key_value = nn.Linear(sizes.key_value_rank, heads * (sizes.nope_head_size + sizes.value_head_size), bias=False)
        self.output = nn.Linear(heads * sizes.value_head_size, shape.hidden_size, bias=False)
        self.core = Core()

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        sizes = self.sizes
        head_size = sizes.nope_head_size + sizes.rope_head_size
        if self.query_down is None or self.query_norm is None:
            query = self.query(x)
        else:
            query = self.query(self.query_norm(self.query_down(x)))
        nope, rope = query.unflatten(-1, (-1, head_size)).split((sizes.nope_head_size, sizes.rope_head_size), dim=-1)
        assert metadata.rotary is not None
        query = torch.cat((nope, metadata.rotary.rotate(rope)), dim=-1) * self.correction  # [B, T, N, D]

        latent, shared_rope = self.latent(x).split((sizes.key_value_rank, sizes.rope_head_size), dim=-1)
        key_value = self.key_value(self.latent_norm(latent)).unflatten(-1, (-1, sizes.nope_head_size + sizes.value_head_size))
        nope, value = key_value.split((sizes.nope_head_size, sizes.value_head_size), dim=-1)
        rope = metadata.rotary.rotate(local_share(shared_rope).unsqueeze(-2))
        key = torch.cat((nope, rope.expand(*nope.shape[:-1], -1)), dim=-1)

        value = F.pad(value, (0, head_size - sizes.value_head_size))  # the fused kernels need values as wide as keys
        mixed = self.core(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), metadata.mask)
        return self.output(mixed[..., : sizes.value_head_size].transpose(1, 2).flatten(2))
