"""Dtypes of parameters, gradients and states; on a GPU, each precision trains like on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from strategist_runtime.mesh import make_meshes
from strategist_runtime.training.trainer import make_trainer

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.contract.options import Options

from .plans import WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]
CPU = torch.device("cpu")


def trainer_of(device=CPU, precision="fp32", optimizer="adamw", kernel="foreach", **knobs):
    workload = replace(WORKLOAD, precision=precision, optimizer=optimizer)
    chosen = Knobs(**{"micro_batch": 8, **knobs})
    made = plan(workload=workload, knobs=chosen, options=Options(optimizer_kernel=kernel), kind=device.type)
    return make_trainer(made, TrialSettings(), make_meshes(Layout(), device.type, 0), device)


def losses(trainer):
    return [trainer.step(trainer.batch(index)).loss for index in range(4)]


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("fp16", torch.float32), ("bf16-true", torch.bfloat16)])
def test_parameters_gradients_and_states_have_one_dtype(precision, dtype):
    trainer = trainer_of(precision=precision)
    trainer.accumulate(trainer.batch(0))
    parameters = list(trainer.parameters())
    assert {parameter.dtype for parameter in parameters} == {dtype}
    assert {parameter.grad.dtype for parameter in parameters} == {dtype}
    trainer.optimizer.step()
    moments = [state[name] for state in trainer.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert {moment.dtype for moment in moments} == {dtype}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "fp16"},
        {"precision": "bf16-true"},
        {"optimizer": "adamw_bf16", "kernel": "fused"},
        {"optimizer": "adamw8bit"},
        {"optimizer": "muon"},
        {"offload": "optimizer", "kernel": "fused"},
        {"offload": "optimizer", "micro_batch": 2},
        {"optimizer_in_backward": True},
        {"optimizer_in_backward": True, "offload": "optimizer", "micro_batch": 2},
    ],
    ids=str,
)
def test_training_on_a_gpu_equals_training_on_the_cpu(settings):
    np.testing.assert_allclose(losses(trainer_of(torch.device("cuda"), **settings)), losses(trainer_of(**settings)), rtol=2e-3)


@pytest.mark.gpu
def test_offloaded_states_are_not_in_gpu_memory():
    def states(**knobs):
        trainer = trainer_of(torch.device("cuda"), **knobs)
        losses(trainer)
        return {state["exp_avg"].device.type for state in trainer.optimizer.state.values()}

    assert states() == {"cuda"}
    assert states(offload="optimizer") == {"cpu"}
