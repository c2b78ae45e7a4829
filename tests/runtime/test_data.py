"""Synthetic text: the same global batch for every layout."""

import pytest
import torch
from strategist_runtime.data import STRIDES, batch

pytestmark = pytest.mark.torch
WHOLE = {"seed": 3, "global_batch": 8, "seq_len": 16, "vocab_size": 50}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_ranks_rows_together_are_the_single_process_batch(ranks):
    whole = batch(**WHOLE, step=5, rank=0, ranks=1)
    parts = [batch(**WHOLE, step=5, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)
    assert torch.equal(torch.cat([part.targets for part in parts]), whole.targets)


def test_targets_are_the_tokens_that_follow():
    rows = batch(**WHOLE, step=0, rank=0, ranks=1)
    assert torch.equal(rows.tokens[:, 1:], rows.targets[:, :-1])
    strides = (rows.targets - rows.tokens) % 50
    assert strides.min() >= 1
    assert strides.max() <= STRIDES
    assert (strides == strides[:, :1]).all()


def test_each_step_and_each_seed_reads_something_else():
    first = batch(**WHOLE, step=0, rank=0, ranks=1).tokens
    assert not torch.equal(first, batch(**WHOLE, step=1, rank=0, ranks=1).tokens)
    assert not torch.equal(first, batch(**{**WHOLE, "seed": 4}, step=0, rank=0, ranks=1).tokens)
