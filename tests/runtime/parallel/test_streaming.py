"""Streamed stages on one rank: rounds, and asynchronous optimizer steps."""

import threading
from dataclasses import replace

import pytest
import torch
from strategist_runtime.measure.profile import profiled
from strategist_runtime.mesh import Meshes
from strategist_runtime.parallel import streaming
from strategist_runtime.training.trainer import Trainer, make_trainer

from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

from ..plans import WORKLOAD, plan

CPU = torch.device("cpu")
STREAMED = Knobs(offload="streamed", recompute="full", micro_batch=2)
pytestmark = pytest.mark.torch


def trainer(chosen: Plan) -> Trainer:
    return make_trainer(chosen, TrialSettings(learning_rate=0.1), Meshes(), CPU)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for part in trainer.parts for name, parameter in part.named_parameters()}


def sgd(**knobs: object) -> Plan:
    return plan(knobs=replace(STREAMED, **knobs), workload=replace(WORKLOAD, optimizer="sgd"))


def test_each_layer_is_copied_once_per_pass_and_round(monkeypatch):
    loads = []
    load = streaming.Stage.load
    monkeypatch.setattr(
        streaming.Stage, "load", lambda stage, stream: (stage.device_weights or loads.append(stage.index), load(stage, stream))
    )
    for rounds in (1, 2):
        loads.clear()
        monkeypatch.setattr(streaming, "stream_rounds", lambda *_, rounds=rounds: rounds)
        one = trainer(sgd())
        one.accumulate(one.batch(0))
        assert loads == rounds * [0, 1, 2, 3, 2, 1, 0]  # the head stays on the device between its passes


def test_gradients_do_not_depend_on_the_number_of_rounds(monkeypatch):
    found = []
    for rounds in (1, 2, 4):
        monkeypatch.setattr(streaming, "stream_rounds", lambda *_, rounds=rounds: rounds)
        one = trainer(sgd())
        loss = one.accumulate(one.batch(0))
        found.append((loss, [parameter.grad for parameter in one.parameters()]))
    for loss, gradients in found[1:]:
        torch.testing.assert_close(loss, found[0][0])
        torch.testing.assert_close(gradients, found[0][1])


def test_streamed_training_with_documents_equals_plain_training():
    found = []
    for knobs in (STREAMED, Knobs(micro_batch=8)):
        chosen = plan(knobs=knobs, workload=replace(WORKLOAD, optimizer="sgd"))
        one = make_trainer(chosen, TrialSettings(mean_document_tokens=5), Meshes(), CPU)
        found.append([one.step(one.batch(index)) for index in range(2)])
    streamed, whole = found
    assert [step.loss for step in streamed] == pytest.approx([step.loss for step in whole], rel=1e-5)
    assert [step.grad_norm for step in streamed] == pytest.approx([step.grad_norm for step in whole], rel=1e-5)


def test_an_async_optimizer_step_uses_parameters_one_step_old():
    delayed, plain = trainer(sgd(async_optimizer_step=True)), trainer(sgd())
    before = weights(plain)  # parameters that a step computes with, one update behind
    for index in range(3):
        delayed.step(delayed.batch(index))
        ahead = weights(plain)
        restore(plain, before)
        loss = plain.accumulate(plain.batch(index))
        restore(plain, ahead)
        plain.update(loss)
        before = ahead
    delayed.pipeline.finish()
    torch.testing.assert_close(weights(delayed), weights(plain))


def restore(trainer: Trainer, values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for part in trainer.parts:
            for name, parameter in part.named_parameters():
                parameter.copy_(values[name])
    trainer.pipeline.refresh()


def test_a_failed_async_optimizer_step_is_raised():
    one = trainer(sgd(async_optimizer_step=True))
    one.optimizer.step = lambda: 1 / 0
    one.step(one.batch(0))
    with pytest.raises(ZeroDivisionError):
        one.step(one.batch(1))


@pytest.mark.parametrize("rounds", [1, 2])
def test_updates_in_the_backward_pass_equal_those_after_it(monkeypatch, rounds):
    monkeypatch.setattr(streaming, "stream_rounds", lambda *_: rounds)
    chosen = [plan(knobs=replace(STREAMED, optimizer_in_backward=in_backward)) for in_backward in (True, False)]
    during, after = (make_trainer(one, TrialSettings(learning_rate=0.1, clip_norm=None), Meshes(), CPU) for one in chosen)
    for index in range(3):
        found, wanted = during.step(during.batch(index)), after.step(after.batch(index))
        assert (found.loss, found.grad_norm) == pytest.approx((wanted.loss, wanted.grad_norm), rel=1e-6)
    torch.testing.assert_close(weights(during), weights(after))


def test_a_stage_is_updated_during_the_backward_pass_of_earlier_stages():
    one = trainer(sgd(optimizer_in_backward=True))
    updated, head = threading.Event(), dict(one.parts[-1].named_parameters())["head.weight"]
    update, backward = one.pipeline.update_parameter, one.pipeline._backward

    def watched_update(parameter):
        update(parameter)
        if parameter is head:
            updated.set()

    def watched_backward(stage, micro_batches):
        assert stage.index > 0 or updated.wait(60)
        return backward(stage, micro_batches)

    one.pipeline.update_parameter, one.pipeline._backward = watched_update, watched_backward
    one.step(one.batch(0))


def test_a_failed_update_in_the_backward_pass_is_raised():
    one = trainer(sgd(optimizer_in_backward=True))
    one.pipeline.update_parameter = lambda parameter: 1 / 0
    with pytest.raises(ZeroDivisionError):
        one.step(one.batch(0))


def test_recomputation_of_streamed_layers_is_measured_as_recompute():
    one = trainer(plan(knobs=STREAMED))
    found = profiled(lambda: one.step(one.batch(0)), CPU).time
    assert all(found[part] > 0 for part in ("matmul", "attention", "recompute", "optimizer"))


@pytest.mark.gpu
def test_streamed_training_on_a_gpu_equals_resident_training():
    found = []
    for knobs in (STREAMED, Knobs(micro_batch=2, recompute="full")):
        chosen = plan(knobs=knobs, kind="cuda")
        one = make_trainer(chosen, TrialSettings(), Meshes(), torch.device("cuda", 0))
        found.append([one.step(one.batch(index)) for index in range(4)])
    streamed, resident = found
    assert [step.loss for step in streamed] == pytest.approx([step.loss for step in resident], rel=1e-5)
    assert [step.grad_norm for step in streamed] == pytest.approx([step.grad_norm for step in resident], rel=1e-5)


def test_the_host_prefetches_one_stage_and_two_micro_batches(monkeypatch):
    """Each copy stream is a queue of the device: inputs in the queue of weights would wait for the next stage's weights."""
    issued = []
    to_device, begin = streaming.CopyStream.to_device, streaming.CopyThrottle.begin
    monkeypatch.setattr(
        streaming.CopyStream, "to_device", lambda stream, source: (issued.append(stream), to_device(stream, source))[1]
    )
    monkeypatch.setattr(streaming.CopyThrottle, "begin", lambda throttle: (issued.append(throttle), begin(throttle))[1])
    one = trainer(sgd())
    one.accumulate(one.batch(0))
    of = one.pipeline
    names = {
        id(of.incoming): "w",
        id(of.incoming_inputs): "i",
        id(of.stage_throttle): "stage ",
        id(of.micro_batch_throttle): "micro ",
    }
    before, *passes = "".join(names[id(item)] for item in issued).split("stage ")
    assert before == ""
    assert len(passes) == 2 * len(of.stages)  # forward and backward
    for stage in passes:
        weights, *micro_batches = stage.split("micro ")
        assert set(weights) <= {"w"}
        assert all(part in ("", "i", "ii") for part in micro_batches)
        assert len(micro_batches) == one.plan.accumulation
