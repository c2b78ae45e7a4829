"""Optimizer updates on the host during the backward pass."""

import threading

import pytest
import torch
from strategist_runtime.optimizers import gradient_norm
from strategist_runtime.optimizers.optimizer import scale_gradients
from strategist_runtime.parallel.copy_streams import Copy

from .test_optimizer import Model, backward, made, weight

pytestmark = pytest.mark.torch


def host_in_backward(**settings):
    return made(**{"offload": "optimizer", "optimizer_in_backward": True, **settings})


@pytest.mark.parametrize("offload", ["optimizer", "all"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_updates_in_the_backward_pass_equal_those_after_it(offload, accumulation):
    model, optimizer = host_in_backward(accumulation=accumulation, offload=offload)
    reference, adamw = made()
    for step in range(0, 9, accumulation):
        for each in (model, reference):
            for micro_batch in range(accumulation):
                backward(each, step + micro_batch)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert optimizer.squared_norm_share() == gradient_norm.squared_norm_share(reference.parameters())
        for its in (optimizer, adamw):
            its.step()
            its.zero_grad()
        assert torch.equal(weight(model), weight(reference))


def test_an_update_waits_for_the_copy_of_its_gradient():
    """FSDP2 copies gradients to the host asynchronously; before the copy ends, the host memory has other values."""

    arrived: dict[torch.Size, torch.Tensor] = {}

    class Late(Copy):
        def on_host(self):
            return self.tensor.copy_(arrived[self.tensor.shape])

    def not_yet(gradient):
        arrived[gradient.shape] = gradient.clone()
        return torch.full_like(gradient, 1e6)

    model, optimizer = host_in_backward(offload="all")
    reference, _ = made()
    backward(reference, 0)
    for parameter in model.parameters():
        parameter.register_hook(not_yet)
        optimizer.host_of[parameter].host_stream.host_tensor = lambda gradient: Late(tensor=gradient)
    backward(model, 0)
    assert optimizer.squared_norm_share() == gradient_norm.squared_norm_share(reference.parameters())
    optimizer.step()


def test_a_parameter_unused_by_a_micro_batch_is_updated_at_the_end():
    model, optimizer = host_in_backward(accumulation=2)
    backward(model, 0)
    optimizer.step()
    assert torch.equal(weight(model), weight(Model()))  # its last gradient may still follow
    optimizer.squared_norm_share()
    optimizer.step()
    assert not torch.equal(weight(model), weight(Model()))


def test_a_parameter_is_updated_during_the_backward_pass_of_earlier_layers():
    model, optimizer = host_in_backward()
    updated, last = threading.Event(), model.norm.weight
    update = optimizer.host_of[last].update

    def watched():
        update()
        updated.set()

    optimizer.host_of[last].update = watched
    first = model.layers["0"].weight
    first.register_hook(lambda _: updates.append(updated.wait(60)))
    updates = []
    backward(model, 0)
    assert updates == [True]
    optimizer.step()


def test_updates_run_in_order_and_finish_with_the_step():
    model, optimizer = host_in_backward()
    order, hold = [], threading.Event()
    optimizer.submit_update(lambda: order.append(hold.wait(60)))
    for name, parameter in model.named_parameters():
        optimizer.host_of[parameter].inner.register_step_post_hook(lambda *_, name=name: order.append(name))
    backward(model, 0)
    assert order == []
    hold.set()
    optimizer.step()
    assert order == [True, "norm.weight", "layers.0.weight"]


def test_a_failed_update_is_raised_in_the_step():
    model, optimizer = host_in_backward()
    optimizer.host_of[model.norm.weight].inner.step = lambda: 1 / 0
    backward(model, 0)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()


def test_scaling_gradients_after_updates_in_backward_has_no_effect():
    model, optimizer = host_in_backward()
    backward(model, 0)
    scale_gradients(optimizer, 0.0)
    optimizer.step()
    assert not torch.equal(model.norm.weight, torch.ones_like(model.norm.weight))


def test_parameters_in_host_memory_are_updated_in_place():
    model, optimizer = host_in_backward(offload="all")
    backward(model, 0)
    optimizer.step()
    own = model.layers["0"].weight
    assert optimizer.host_of[own].twins[own].data_ptr() == own.data_ptr()
