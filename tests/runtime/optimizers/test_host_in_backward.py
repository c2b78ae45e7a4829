"""The host updates each parameter while the backward pass goes on."""

import threading

import pytest
import torch
from strategist_runtime.optimizers import gradients
from strategist_runtime.optimizers.optimizer import scale_gradients
from strategist_runtime.parallel.copy_streams import Copy

from .test_optimizer import Model, backward, made, weight

pytestmark = pytest.mark.torch


def beside(**settings):
    return made(**{"offload": "optimizer", "optimizer_in_backward": True, **settings})


@pytest.mark.parametrize("offload", ["optimizer", "all"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_updates_beside_the_backward_pass_are_those_after_it(offload, accumulation):
    model, optimizer = beside(accumulation=accumulation, offload=offload)
    reference, adamw = made()
    for step in range(0, 9, accumulation):
        for each in (model, reference):
            for micro_batch in range(accumulation):
                backward(each, step + micro_batch)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert optimizer.squared_norm_share() == gradients.squared_norm_share(reference.parameters())
        for its in (optimizer, adamw):
            its.step()
            its.zero_grad()
        assert torch.equal(weight(model), weight(reference))


def test_a_gradient_that_is_still_on_its_way_counts_when_it_has_come():
    """FSDP2 copies gradients to the host without waiting; until then there is something else in their memory."""

    come: dict[torch.Size, torch.Tensor] = {}

    class Late(Copy):
        def on_host(self):
            return self.tensor.copy_(come[self.tensor.shape])

    def not_yet(gradient):
        come[gradient.shape] = gradient.clone()
        return torch.full_like(gradient, 1e6)

    model, optimizer = beside(offload="all")
    reference, _ = made()
    backward(reference, 0)
    for parameter in model.parameters():
        parameter.register_hook(not_yet)
        optimizer.host_of[parameter].down.there = lambda gradient: Late(tensor=gradient)
    backward(model, 0)
    assert optimizer.squared_norm_share() == gradients.squared_norm_share(reference.parameters())
    optimizer.step()


def test_a_parameter_that_some_micro_batches_do_not_use_is_updated_too():
    model, optimizer = beside(accumulation=2)
    backward(model, 0)
    optimizer.step()
    assert torch.equal(weight(model), weight(Model()))  # its last gradient may still come
    optimizer.squared_norm_share()
    optimizer.step()
    assert not torch.equal(weight(model), weight(Model()))


def test_a_parameter_is_updated_while_those_before_it_go_backward():
    model, optimizer = beside()
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


def test_nothing_is_updated_out_of_turn_and_all_is_done_when_the_step_is():
    model, optimizer = beside()
    order, hold = [], threading.Event()
    optimizer.beside(lambda: order.append(hold.wait(60)))
    for name, parameter in model.named_parameters():
        optimizer.host_of[parameter].inner.register_step_post_hook(lambda *_, name=name: order.append(name))
    backward(model, 0)
    assert order == []
    hold.set()
    optimizer.step()
    assert order == [True, "norm.weight", "layers.0.weight"]


def test_a_failed_update_is_raised_in_the_step():
    model, optimizer = beside()
    optimizer.host_of[model.norm.weight].inner.step = lambda: 1 / 0
    backward(model, 0)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()


def test_no_gradient_is_left_to_clip():
    model, optimizer = beside()
    backward(model, 0)
    scale_gradients(optimizer, 0.0)
    optimizer.step()
    assert not torch.equal(model.norm.weight, torch.ones_like(model.norm.weight))


def test_parameters_that_lie_on_the_host_are_updated_where_they_are():
    model, optimizer = beside(offload="all")
    backward(model, 0)
    optimizer.step()
    own = model.layers["0"].weight
    assert optimizer.host_of[own].twins[own].data_ptr() == own.data_ptr()
