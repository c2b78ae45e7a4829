"""The chunked loss has the value and the gradients of torch's cross entropy, and never more logits than one chunk has."""

import pytest
import torch
import torch.nn.functional as F
from strategist_runtime.model.chunked_loss import ChunkedLoss
from torch.utils._python_dispatch import TorchDispatchMode

from strategist.contract.loss import IGNORED

pytestmark = pytest.mark.torch

ROWS, TOKENS, HIDDEN, VOCABULARY = 2, 25, 16, 100


class LargestResult(TorchDispatchMode):
    """The most elements of a result of any operator."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, TOKENS, HIDDEN, requires_grad=True)
    weight = torch.randn(VOCABULARY, HIDDEN, requires_grad=True)
    return hidden, weight, torch.randint(VOCABULARY, (ROWS, TOKENS))


def whole_loss(hidden, weight, targets, divisor):
    return F.cross_entropy((hidden @ weight.t()).flatten(0, 1).float(), targets.flatten(), reduction="sum") / divisor


@pytest.mark.parametrize("chunk_tokens", [1, 7, 8, 50, 64])
@pytest.mark.parametrize("ignored", [0, 13, TOKENS * ROWS])
def test_value_and_gradients_are_those_of_a_whole_loss(inputs, chunk_tokens, ignored):
    hidden, weight, targets = inputs
    targets.view(-1)[:ignored] = IGNORED
    found = ChunkedLoss(chunk_tokens=chunk_tokens, divisor=30.0)(hidden, weight, targets)
    wanted = whole_loss(hidden, weight, targets, 30.0)
    torch.testing.assert_close(found, wanted)
    gradients = (torch.autograd.grad(3.0 * loss, (hidden, weight)) for loss in (found, wanted))
    torch.testing.assert_close(*gradients)


def test_logits_of_one_chunk_exist_at_a_time(inputs):
    with LargestResult() as largest:
        ChunkedLoss(chunk_tokens=8, divisor=1.0)(*inputs).backward()
    assert largest.elements == VOCABULARY * HIDDEN  # of the head's gradient; a chunk has half as many logits


def test_the_heads_gradient_in_bf16_is_as_exact_as_that_of_a_whole_loss(inputs):
    """A sum of 250 chunks in bf16 would be off by several times as much."""
    hidden, weight, targets = (part.detach() for part in inputs)
    hidden, weight = hidden.bfloat16().repeat(1, 40, 1).requires_grad_(), weight.bfloat16().requires_grad_()
    targets = targets.repeat(1, 40)
    exact = torch.autograd.grad(whole_loss(hidden.float(), weight.float(), targets, 1.0), (weight,))[0].float()
    losses = ChunkedLoss(chunk_tokens=8, divisor=1.0)(hidden, weight, targets), whole_loss(hidden, weight, targets, 1.0)
    chunked, whole = ((torch.autograd.grad(loss, (weight,))[0].float() - exact).norm() for loss in losses)
    assert chunked < 1.2 * whole


def test_a_frozen_head_has_no_gradient(inputs):
    hidden, weight, targets = inputs
    loss = ChunkedLoss(chunk_tokens=8, divisor=1.0)(hidden, weight.detach(), targets)
    loss.backward()
    wanted = torch.autograd.grad(whole_loss(hidden, weight, targets, 1.0), (hidden,))[0]
    torch.testing.assert_close(hidden.grad, wanted)
    assert weight.grad is None


def test_without_gradients_only_the_value_is_computed(inputs):
    hidden, weight, targets = inputs
    with torch.no_grad(), LargestResult() as largest:
        found = ChunkedLoss(chunk_tokens=8, divisor=1.0)(hidden, weight, targets)
    assert not found.requires_grad
    torch.testing.assert_close(found, whole_loss(hidden, weight, targets, 1.0).detach())
    assert largest.elements == VOCABULARY * HIDDEN  # of the head's weight


def test_scale_multiplies_gradients_only(inputs):
    hidden, weight, targets = inputs
    found = ChunkedLoss(chunk_tokens=8, divisor=1.0, scale=4.0)(hidden, weight, targets)
    wanted = whole_loss(hidden, weight, targets, 1.0)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(loss, (hidden, weight)) for loss in (found, 4.0 * wanted)]
    torch.testing.assert_close(*gradients)
