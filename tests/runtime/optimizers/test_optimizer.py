"""Optimizers: dtype and device of their states, and when they update."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from strategist_runtime.measure.memory import static_bytes
from strategist_runtime.optimizers import gradient_norm
from strategist_runtime.optimizers.muon import Muon
from strategist_runtime.optimizers.optimizer import WEIGHT_DECAY, attach, make_optimizer, scale_gradients
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings
from strategist.contract.options import Options
from strategist.cost.model_states import OPTIMIZER_BYTES
from strategist.cost.muon import newton_schulz_flops

from ..fake_cuda import DEVICE, FakeCuda, FakeStream
from ..plans import WORKLOAD, plan

pytestmark = pytest.mark.torch

SIZE, BATCH, RATE = 256, 8, 1e-3
ELEMENTS = SIZE * SIZE
HOST_IN_BACKWARD = {"offload": "optimizer", "optimizer_in_backward": True}


class Model(nn.Module):
    """A model with one layer matrix and one norm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleDict({"0": nn.Linear(SIZE, SIZE, bias=False)})
        self.norm = nn.RMSNorm(SIZE)

    def forward(self, x):
        return self.norm(self.layers["0"](x))


def made(name="adamw", kernel="foreach", accumulation=1, **knobs):
    model = Model()
    workload = replace(WORKLOAD, optimizer=name, global_batch=accumulation)
    chosen = plan(workload=workload, knobs=Knobs(**knobs), options=Options(optimizer_kernel=kernel))
    optimizer = make_optimizer(model.named_parameters(), chosen, TrialSettings(learning_rate=RATE))
    attach(optimizer, [model], chosen)
    return model, optimizer


def backward(model, step):
    x = torch.randn(BATCH, SIZE, generator=torch.Generator().manual_seed(step))
    (model(x) * torch.randn(BATCH, SIZE, generator=torch.Generator().manual_seed(step + 100))).sum().backward()


def trained(name="adamw", steps=3, **knobs):
    model, optimizer = made(name, **knobs)
    for step in range(steps):
        backward(model, step)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def weight(model):
    return model.layers["0"].weight.detach()


def moved(model):
    return weight(model) - weight(Model())


def test_weight_decay_defaults_to_that_of_the_optimizer():
    found = {}
    for name, decay in (("sgd", None), ("adamw", None), ("sgd", 0.25)):
        chosen = plan(workload=replace(WORKLOAD, optimizer=name))
        optimizer = make_optimizer(Model().named_parameters(), chosen, TrialSettings(weight_decay=decay))
        found[name, decay] = {group["weight_decay"] for group in optimizer.param_groups}
    assert found == {("sgd", None): {0.0}, ("adamw", None): {WEIGHT_DECAY}, ("sgd", 0.25): {0.25}}


@pytest.mark.parametrize("name", OPTIMIZER_BYTES)
def test_state_bytes_equal_the_cost_models(name):
    _, optimizer = trained(name, steps=1)
    states = static_bytes([], optimizer, [])
    small = 8 * SIZE + 2 * 4 * 256 + 100  # states of the norm, quantization tables of 8-bit states, and counters
    assert ELEMENTS * OPTIMIZER_BYTES[name] <= states <= ELEMENTS * OPTIMIZER_BYTES[name] + small


@pytest.mark.parametrize("kernel", ["foreach", "fused", "for_loop"])
def test_bf16_moments_are_updated_in_fp32(kernel):
    model, optimizer = trained("adamw_bf16", kernel=kernel)
    assert {moment.dtype for moment in optimizer.state[model.layers["0"].weight].values()} == {torch.float32, torch.bfloat16}
    reference = Model()
    adamw = torch.optim.AdamW(reference.parameters(), lr=RATE, betas=(0.9, 0.95))
    for step in range(3):
        backward(reference, step)
        adamw.step()
        adamw.zero_grad()
    difference = (moved(model) - moved(reference)).norm() / moved(reference).norm()
    assert 0 < difference < 2**-8


def test_8_bit_adamw_updates_are_close_to_those_of_adamw():
    eight, whole = moved(trained("adamw8bit")[0]), moved(trained("adamw")[0])
    assert 0 < (eight - whole).norm() / whole.norm() < 0.1


def test_muon_orthogonalises_updates_of_layer_matrices_and_uses_adamw_for_the_rest():
    model, optimizer = trained("muon", steps=1)
    kinds = {name: set(optimizer.state[parameter]) for name, parameter in model.named_parameters()}
    assert kinds == {"layers.0.weight": {"momentum_buffer"}, "norm.weight": {"step", "exp_avg", "exp_avg_sq"}}
    sizes = torch.linalg.svdvals(moved(model))
    assert sizes[0] / sizes[BATCH - 1] < 2  # the gradient has as many directions as there are rows


@pytest.mark.parametrize("settings", [{"name": "adamw"}, {"name": "muon"}, {"offload": "optimizer"}, HOST_IN_BACKWARD], ids=str)
def test_training_continues_from_loaded_optimizer_states(settings):
    model, optimizer = trained(**settings)
    other, loaded = made(**settings)
    other.load_state_dict(model.state_dict())
    loaded.load_state_dict(deepcopy(optimizer.state_dict()))
    for each, its in ((model, optimizer), (other, loaded)):
        backward(each, 7)
        its.step()
    assert torch.equal(weight(model), weight(other))


def test_updates_in_the_backward_pass_equal_later_ones_and_free_gradients():
    model, optimizer = made(optimizer_in_backward=True)
    reference, adamw = made()
    for step in range(3):
        backward(model, step)
        backward(reference, step)
        assert all(parameter.grad is None for parameter in model.parameters())
        share = optimizer.squared_norm_share()
        assert share == gradient_norm.squared_norm_share(reference.parameters())
        optimizer.step()
        adamw.step()
        adamw.zero_grad()
        assert torch.equal(weight(model), weight(reference))


def test_with_optimizer_in_backward_only_one_gradient_exists_at_a_time():
    model, _ = made(optimizer_in_backward=True)
    alive = []
    for parameter in model.parameters():
        parameter.register_hook(lambda _: alive.append(sum(each.grad is not None for each in model.parameters())))
    backward(model, 0)
    assert alive == [0, 0]


@pytest.mark.parametrize("kernel", ["foreach", "fused"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_host_updates_equal_device_updates(accumulation, kernel):
    model, optimizer = made(kernel=kernel, offload="optimizer", accumulation=accumulation)
    reference, adamw = made(kernel=kernel)
    for step in range(0, 9, accumulation):
        for each in (model, reference):
            for micro_batch in range(accumulation):
                backward(each, step + micro_batch)
        for its in (optimizer, adamw):
            scale_gradients(its, 0.5)
            its.step()
            its.zero_grad()
        assert torch.equal(weight(model), weight(reference))
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["adamw", "muon", "sgd", "adamw_bf16"])
def test_a_gradient_scale_applies_to_the_next_update_only(name):
    model, optimizer = made(name, kernel="fused" if name != "sgd" else "foreach")
    reference, other = made(name, kernel="fused" if name != "sgd" else "foreach")
    for step, factor in enumerate((0.25, 1.0, 0.5)):
        backward(model, step)
        backward(reference, step)
        scale_gradients(optimizer, factor)
        for parameter in reference.parameters():
            parameter.grad *= factor
        for each in (optimizer, other):
            each.step()
            each.zero_grad()
        torch.testing.assert_close(weight(model), weight(reference), rtol=1e-6, atol=1e-7)


def test_offloaded_optimizers_keep_parameter_copies_and_states_on_the_host():
    model, optimizer = trained(offload="optimizer", steps=1)
    own = model.layers["0"].weight
    assert optimizer.twins[own].data_ptr() != own.data_ptr()
    assert optimizer.state[own] is optimizer.inner.state[optimizer.twins[own]]


def test_host_updates_start_from_loaded_weights():
    model, optimizer = trained(offload="optimizer")
    with torch.no_grad():
        model.layers["0"].weight.fill_(1.0)
    backward(model, 5)
    optimizer.step()
    assert (weight(model) - 1).abs().max() < 0.01


def test_frozen_parameters_are_not_in_the_optimizer():
    model = Model()
    model.norm.weight.requires_grad_(False)
    optimizer = make_optimizer(model.named_parameters(), plan(), TrialSettings())
    assert [len(group["params"]) for group in optimizer.param_groups] == [1]


def test_updates_by_reduced_buckets_share_one_stream(monkeypatch):
    """Futures of DDP buckets run callbacks on pooled streams; memory that is allocated on each of them stays with it."""
    cuda = FakeCuda().install(monkeypatch)
    _, optimizer = made(optimizer_in_backward=True)
    used = []
    for _ in range(2):
        here = cuda.current = FakeStream(cuda)
        with optimizer.on_one_stream(DEVICE):
            used.append(cuda.current)
        assert cuda.log == [(used[0].name, "waits for", here.name), (here.name, "waits for", used[0].name)]
        cuda.log.clear()
    assert used[0] is used[1]


@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (16, 48), (64, 24)])
def test_muons_flops_equal_the_priced_ones(rows, columns):
    matrix = torch.nn.Parameter(torch.randn(rows, columns))
    matrix.grad = torch.randn(rows, columns)
    with FlopCounterMode(display=False) as counted:
        Muon([matrix], lr=0.1).step()
    assert counted.get_total_flops() == newton_schulz_flops(rows, columns)
