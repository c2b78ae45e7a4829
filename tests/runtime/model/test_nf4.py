"""4-bit weights: the paper's levels, the nearest of them, and rows that stand for themselves."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from strategist_runtime.model import nf4

pytestmark = pytest.mark.torch


def restored(weight, dtype=torch.float32):
    return nf4.dequantise(**nf4.quantise(weight), dtype=dtype)


def test_levels_are_the_quantiles_of_a_normal_distribution_with_zero_among_them():
    """arXiv 2305.14314, appendix E: 8 levels below 0 and 9 from it on, both ends at the same distance from certainty."""
    end = (1 - 1 / 32 + 1 - 1 / 30) / 2  # mean of what 16 and 15 equal shares leave outside
    positive, negative = norm.ppf(np.linspace(end, 0.5, 9))[:-1], -norm.ppf(np.linspace(end, 0.5, 8))[:-1]
    levels = np.sort(np.concatenate((positive, [0.0], negative)))
    np.testing.assert_allclose(nf4.LEVELS, levels / levels.max(), atol=1e-6)


def test_each_weight_becomes_the_nearest_level_of_its_block():
    weight = torch.randn(5, 256, generator=torch.Generator().manual_seed(1))
    blocks = weight.unflatten(-1, (-1, nf4.BLOCK_SIZE))
    largest = blocks.abs().amax(-1, keepdim=True)
    levels = (torch.tensor(nf4.LEVELS) * largest[..., None]).expand(*blocks.shape, -1)
    nearest = levels.gather(-1, (levels - blocks[..., None]).abs().argmin(-1, keepdim=True))[..., 0]
    slack = (largest.amax(1, keepdim=True) - largest.amin(1, keepdim=True)) / 255  # constants have 8 bits
    assert ((restored(weight).unflatten(-1, (-1, nf4.BLOCK_SIZE)) - nearest).abs() <= slack).all()


def test_what_lies_on_levels_comes_back_as_it_was():
    codes = torch.randint(16, (4, 128), generator=torch.Generator().manual_seed(2))
    codes[:, ::64] = 15  # each block has its constant
    weight = torch.tensor(nf4.LEVELS)[codes] * torch.tensor([1.0, 3.0]).repeat_interleave(64)
    torch.testing.assert_close(restored(weight), weight)


def test_blocks_of_nothing_stay_nothing():
    assert not restored(torch.zeros(2, 128)).any()


def test_a_run_of_blocks_is_restored_by_itself():
    parts = nf4.quantise(torch.randn(6, 256))
    whole = nf4.dequantise(**parts, dtype=torch.float32)
    piece = nf4.dequantise(parts["codes"][2:, 64:], parts["constants"][2:, 2:], parts["rows"][2:], torch.float32)
    assert torch.equal(piece, whole[2:, 128:])


def test_the_backward_pass_waits_with_the_bytes_alone():
    weight, x = torch.randn(64, 128), torch.randn(3, 128, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = nf4.FrozenLinear.apply(x, *nf4.quantise(weight).values())
    torch.testing.assert_close(y, x @ restored(weight).T)
    y.sum().backward()
    torch.testing.assert_close(x.grad, restored(weight).sum(0).expand(3, -1))
    assert {tensor.dtype for tensor in kept} == {torch.uint8}
