"""Loss scaling: steps with overflow are skipped and the scale is halved, down to a minimum."""

import math
from dataclasses import replace

import pytest
import torch
from strategist_runtime.mesh import make_meshes
from strategist_runtime.model.loss_scale import BACKOFF, GROWTH, GROWTH_STEPS, INITIAL, MIN_SCALE, LossScale
from strategist_runtime.training.trainer import make_trainer

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings

from ..plans import WORKLOAD, plan

pytestmark = pytest.mark.torch


def test_scaling_changes_gradients_but_not_the_reported_loss():
    value = torch.tensor(3.0, requires_grad=True)
    loss = LossScale().scale_gradients(value * 2)
    loss.backward()
    assert loss.item() == 6.0
    assert value.grad.item() == 2 * INITIAL


def test_overflow_reduces_the_loss_scale():
    scale = LossScale()
    assert scale.update(math.inf)
    assert scale.value == INITIAL * BACKOFF


def test_the_loss_scale_grows_after_many_finite_steps():
    scale = LossScale()
    for _ in range(GROWTH_STEPS - 1):
        assert not scale.update(1.0)
    scale.update(math.nan)
    assert scale.value == INITIAL * BACKOFF
    for _ in range(GROWTH_STEPS):
        scale.update(1.0)
    assert scale.value == INITIAL * BACKOFF * GROWTH


def test_overflow_at_the_minimum_scale_is_not_skipped():
    scale = LossScale()
    scale.value = MIN_SCALE
    assert not scale.update(math.inf)


@pytest.fixture
def trainer():
    half = plan(workload=replace(WORKLOAD, precision="fp16"), knobs=Knobs(micro_batch=8))
    return make_trainer(half, TrialSettings(), make_meshes(Layout(), "cpu", 0), torch.device("cpu"))


def weights(trainer):
    return [parameter.detach().clone() for parameter in trainer.parameters()]


def test_a_step_with_overflow_changes_only_the_scale(trainer):
    trainer.loss.scale.value = 2.0**40
    before = weights(trainer)
    result = trainer.step(trainer.batch(0))
    assert result.skipped
    assert not result.finite
    assert trainer.loss_scale == 2.0**39
    assert all(torch.equal(old, new) for old, new in zip(before, weights(trainer), strict=True))


def test_the_reported_gradient_norm_is_unscaled(trainer):
    other = replace(trainer, loss=type(trainer.loss)(trainer.plan))
    other.loss.scale.value = 1.0
    scaled = trainer.reduced(trainer.accumulate(trainer.batch(0)))
    trainer.optimizer.zero_grad()
    plain = other.reduced(other.accumulate(other.batch(0)))
    assert scaled.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)
    result = trainer.step(trainer.batch(0))
    assert not result.skipped
    assert result.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)


def test_a_nan_loss_is_not_skipped(trainer):
    with torch.no_grad():
        trainer.parts[0].head.weight.fill_(math.nan)
    assert not trainer.step(trainer.batch(0)).skipped
