"""Replacements of torch's private functions in a simulation."""

import pytest
import torch
from strategist_runtime.compat.simulate import Chunks
from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("shape", "dim"), [((8, 3), 0), ((7, 2), 0), ((3,), 0), ((1, 5), 0), ((2, 12), 1)])
@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_chunks_that_are_made_when_they_are_read_equal_those_of_torch(shape: tuple[int, ...], dim: int, count: int) -> None:
    """With uneven sizes the last chunks are smaller, or empty."""
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    chunks, expected = Chunks(tensor, count, dim), _chunk_with_empty(tensor, count, dim)
    assert len(chunks) == len(expected)
    for chunk, same in zip(chunks, expected, strict=True):
        assert torch.equal(chunk, same)
        assert chunk.stride() == same.stride()
        assert chunk.numel() == 0 or chunk.data_ptr() == same.data_ptr(), "chunks share the tensor's memory"
