"""Attention sinks: a learned score per head that takes part in each softmax and contributes no value (arXiv 2309.17453,
2508.10925).

Shapes: B sequences, T tokens, N heads of this rank, D elements of a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from strategist_runtime.compat import context as compat_context
from strategist_runtime.compat.context import Mask
from strategist_runtime.compat.dtensor import local
from strategist_runtime.compat.kernels import fused_attention

PADDING = 8
"""Elements added to a head for the sink's score: one is needed, but kernels need multiples of 8."""


class SinkCore(nn.Module):
    """Attention without the matmuls around it, with a learned sink score for each head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.empty(heads))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None = None) -> Tensor:
        """[B, N, T, D]; causal if there is no mask."""
        scores = local(self.sinks)
        if isinstance(mask, BlockMask):
            return compat_context.masked_attention_with_sinks(query, key, value, mask, scores)
        query, key, value = _with_sink(query, key, value, scores)
        if mask is None:
            mixed = fused_attention(query, key, value)
        else:
            mixed = compat_context.masked_attention(query, key, value, F.pad(mask, (1, 0, 1, 0), value=True))
        return mixed[:, :, 1:, :-PADDING]


def _with_sink(query: Tensor, key: Tensor, value: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Prepends a sink token: its key meets each query in an extra element, which yields the sink's score, and its value is 0.

    So fused kernels without support for sinks can be used; the output of the sink token itself is dropped.
    """
    rows, _, tokens, width = query.shape
    padded_width = width + PADDING
    query = query * (padded_width / width) ** 0.5  # kernels divide scores by the square root of the padded width
    sink_query = (scores * padded_width**0.5).to(query.dtype)[None, :, None, None].expand(rows, -1, tokens, 1)
    query = F.pad(torch.cat((query, sink_query), dim=-1), (0, PADDING - 1, 1, 0))
    sink_key = F.one_hot(torch.tensor(width, device=key.device), padded_width).to(key.dtype).expand(rows, key.shape[1], 1, -1)
    return query, torch.cat((sink_key, F.pad(key, (0, PADDING))), dim=2), F.pad(value, (0, PADDING, 1, 0))
