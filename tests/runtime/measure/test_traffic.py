"""Counting collectives around operators that run as one compiled kernel."""

import pytest
import torch
from strategist_runtime.measure.traffic import CollectiveCounter
from torch._higher_order_ops.flex_attention import flex_attention
from torch.nn.attention.flex_attention import create_block_mask

pytestmark = pytest.mark.torch


def test_flex_attention_works_while_collectives_are_counted():
    query = torch.randn(1, 4, 256, 16, requires_grad=True)
    key, value = (torch.randn(1, 2, 256, 16, requires_grad=True) for _ in range(2))
    mask = create_block_mask(lambda batch, head, at, seen: at >= seen, 1, None, 256, 256, device="cpu")
    with CollectiveCounter() as counter:
        outputs, *_ = flex_attention(
            query,
            key,
            value,
            lambda score, *_: score,
            mask.as_tuple(),
            0.25,
            {"OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False},
            (),
            (),
        )
        outputs.sum().backward()
    assert outputs.shape == query.shape
    assert [tensor.grad.shape for tensor in (query, key, value)] == [tensor.shape for tensor in (query, key, value)]
    assert counter.calls == []
