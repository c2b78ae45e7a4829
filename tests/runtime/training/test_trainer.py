"""Training steps: the samples that they read, and the effect of a non-finite step."""

import math
from dataclasses import replace

import pytest
import torch
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.training.trainer import make_trainer

from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings

from ..plans import WORKLOAD, plan

CPU = torch.device("cpu")
pytestmark = pytest.mark.torch


def test_batches_start_after_the_samples_of_earlier_trainings():
    trainer = make_trainer(plan(), TrialSettings(), Meshes(), CPU)
    later = replace(trainer, first_sample=2 * WORKLOAD.global_batch)
    assert torch.equal(later.batch(1).tokens, trainer.batch(3).tokens)
    assert not torch.equal(later.batch(1).tokens, trainer.batch(1).tokens)


@pytest.mark.parametrize("offload", ["none", "streamed"])
def test_a_non_finite_step_updates_no_parameter(offload):
    knobs = Knobs(offload=offload, recompute="full" if offload == "streamed" else "none", micro_batch=2)
    trainer = make_trainer(plan(knobs=knobs), TrialSettings(learning_rate=0.1), Meshes(), CPU)
    with torch.no_grad():
        named = dict(plain_names(trainer.parts))
        named["head.weight"].fill_(math.nan)
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    assert not trainer.step(trainer.batch(0)).finite
    for name, parameter in named.items():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=0, atol=0, equal_nan=True, msg=name)
    assert all(parameter.grad is None for parameter in named.values())
