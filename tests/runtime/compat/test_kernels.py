"""Fused kernels that torch has no exact or fast version of."""

import pytest
import torch
from strategist_runtime.compat import kernels

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("elements", [0, 3, 4096, 5_000_003])
def test_host_norms_are_exact_for_any_tensor_size(elements):
    values = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    (found,) = kernels.norms([values])
    assert found.item() == pytest.approx(values.double().norm().item(), rel=1e-6)
    (rounded,) = kernels.norms([values.bfloat16()])
    assert rounded.item() == pytest.approx(values.double().norm().item(), rel=1e-2)
