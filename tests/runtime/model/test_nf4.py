"""NF4 quantization: the paper's levels, rounding to the nearest level, and independent blocks."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from strategist_runtime.model import nf4

pytestmark = pytest.mark.torch


def restored(weight, dtype=torch.float32):
    return nf4.dequantise(**nf4.quantise(weight), dtype=dtype)


def test_levels_are_quantiles_of_a_normal_distribution_including_zero():
    """arXiv 2305.14314, appendix E: 8 levels below 0 and 9 from 0 on, with equal tail probability at both ends."""
    end = (1 - 1 / 32 + 1 - 1 / 30) / 2  # mean of the tails outside of 16 and 15 equal shares
    positive, negative = norm.ppf(np.linspace(end, 0.5, 9))[:-1], -norm.ppf(np.linspace(end, 0.5, 8))[:-1]
    levels = np.sort(np.concatenate((positive, [0.0], negative)))
    np.testing.assert_allclose(nf4.LEVELS, levels / levels.max(), atol=1e-6)


def test_each_weight_is_rounded_to_the_nearest_level_of_its_block():
    weight = torch.randn(5, 256, generator=torch.Generator().manual_seed(1))
    blocks = weight.unflatten(-1, (-1, nf4.BLOCK_SIZE))
    largest = blocks.abs().amax(-1, keepdim=True)
    levels = (torch.tensor(nf4.LEVELS) * largest[..., None]).expand(*blocks.shape, -1)
    nearest = levels.gather(-1, (levels - blocks[..., None]).abs().argmin(-1, keepdim=True))[..., 0]
    slack = (largest.amax(1, keepdim=True) - largest.amin(1, keepdim=True)) / 255  # constants have 8 bits
    assert ((restored(weight).unflatten(-1, (-1, nf4.BLOCK_SIZE)) - nearest).abs() <= slack).all()


def test_weights_on_levels_are_restored_exactly():
    codes = torch.randint(16, (4, 128), generator=torch.Generator().manual_seed(2))
    codes[:, ::64] = 15  # each block has its constant
    weight = torch.tensor(nf4.LEVELS)[codes] * torch.tensor([1.0, 3.0]).repeat_interleave(64)
    torch.testing.assert_close(restored(weight), weight)


def test_zero_blocks_stay_zero():
    assert not restored(torch.zeros(2, 128)).any()


def test_a_slice_of_blocks_can_be_dequantised_alone():
    parts = nf4.quantise(torch.randn(6, 256))
    whole = nf4.dequantise(**parts, dtype=torch.float32)
    part = nf4.dequantise(parts["codes"][2:, 64:], parts["constants"][2:, 2:], parts["rows"][2:], torch.float32)
    assert torch.equal(part, whole[2:, 128:])


def test_the_backward_pass_saves_only_quantised_weights():
    weight, x = torch.randn(64, 128), torch.randn(3, 128, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = nf4.FrozenLinear.apply(x, *nf4.quantise(weight).values())
    torch.testing.assert_close(y, x @ restored(weight).T)
    y.sum().backward()
    torch.testing.assert_close(x.grad, restored(weight).sum(0).expand(3, -1))
    assert {tensor.dtype for tensor in kept} == {torch.uint8}
