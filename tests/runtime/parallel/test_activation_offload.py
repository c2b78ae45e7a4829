"""Activation offload: which tensors are copied to the host, which stay, and that unpacked tensors equal the saved ones."""

import gc

import pytest
import torch
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import no_layer_context
from strategist_runtime.parallel.activation_offload import OffloadBuffer, OffloadBuffers, unpack
from strategist_runtime.training.trainer import Trainer, make_trainer

from strategist.contract.knobs import Knobs
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload

from ..cases import MODELS
from ..plans import WORKLOAD, plan

DEEP = MODELS["deep"]
CPU = torch.device("cpu")


def trainer(model: ModelShape = DEEP, workload: Workload = WORKLOAD, device: torch.device = CPU, **knobs: object) -> Trainer:
    one = plan(knobs=Knobs(micro_batch=8, **knobs), model=model, workload=workload, kind=device.type)
    return make_trainer(one, TrialSettings(), Meshes(), device)


def buffers_of(one: Trainer) -> OffloadBuffers:
    (part,) = one.parts
    return part.layer_context.__self__


def buffers_up_to(first_buffer: OffloadBuffer | None) -> list[OffloadBuffer]:
    """A buffer and those before it, first layer first."""
    return [] if first_buffer is None else [*buffers_up_to(first_buffer.previous), first_buffer]


def forward(one: Trainer) -> tuple[torch.Tensor, list[OffloadBuffer]]:
    (part,) = one.parts
    batch = one.batch(0)
    loss = one.loss(part(batch.tokens), batch.targets)
    return loss, buffers_up_to(buffers_of(one).current)


def first_buffer() -> OffloadBuffer:
    one = trainer(activation_offload=True)
    forward(one)
    return buffers_up_to(buffers_of(one).current)[0]


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_activations_of_all_layers_except_the_last_are_offloaded(recompute):
    _loss, buffers = forward(trainer(activation_offload=True, recompute=recompute))
    assert len(buffers) == DEEP.layers
    for one in buffers[:-1]:
        assert one.tensors
        assert all(saved.host_copy is not None and saved.device_copy is None for saved in one.tensors.values())
    assert buffers[-1].tensors
    assert all(saved.host_copy is None for saved in buffers[-1].tensors.values())


def test_with_full_recomputation_only_layer_inputs_are_offloaded():
    _loss, buffers = forward(trainer(activation_offload=True, recompute="full"))
    for one in buffers[:-1]:
        (saved,) = (each for each in one.tensors.values() if each.host_copy.tensor.numel())  # torch 2.11 saves an empty tensor, too
        assert saved.host_copy.tensor.shape == (8, WORKLOAD.seq_len, DEEP.hidden_size)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_and_their_casts_are_not_offloaded(precision):
    one = trainer(activation_offload=True, workload=Workload(seq_len=16, global_batch=8, precision=precision))
    (part,) = one.parts
    matrices = {shape for p in part.parameters() if p.dim() == 2 for shape in (tuple(p.shape), tuple(p.shape[::-1]))}
    _loss, buffers = forward(one)
    assert not {tuple(saved.host_copy.tensor.shape) for each in buffers[:-1] for saved in each.tensors.values()} & matrices


def test_offload_buffers_are_empty_after_the_backward_pass():
    loss, buffers = forward(trainer(activation_offload=True))
    loss.backward()
    del loss
    gc.collect()
    assert not any(len(one.tensors) for one in buffers)


def test_a_tensor_saved_by_several_operations_is_offloaded_once():
    one, tensor = first_buffer(), torch.randn(4, 4)
    first, second = one.pack(tensor), one.pack(tensor)
    assert first.saved is second.saved
    assert one.pack(tensor.t()).saved is not first.saved


def test_a_modified_tensor_is_offloaded_again():
    one, tensor = first_buffer(), torch.zeros(4)
    before = one.pack(tensor)
    tensor.add_(1)
    after = one.pack(tensor)
    assert unpack(before).tolist() == [0] * 4
    assert unpack(after).tolist() == [1] * 4


def test_reused_memory_is_not_confused_with_an_offloaded_tensor():
    one, saved, places = first_buffer(), [], set()
    for value in range(20):
        tensor = torch.full((1024,), float(value))
        places.add(tensor.data_ptr())
        saved.append(one.pack(tensor))
        del tensor
    assert len(places) < len(saved)
    assert [unpack(each)[0].item() for each in saved] == list(range(20))


def test_a_layers_backward_pass_prefetches_the_previous_layer():
    _loss, buffers = forward(trainer(activation_offload=True))
    offloaded = [list(one.tensors.values()) for one in buffers]
    buffers[2].begin_backward()
    for number, each in enumerate(offloaded[:-1]):
        assert all((saved.device_copy is not None) == (number in (1, 2)) for saved in each)


def test_without_activation_offload_layers_have_no_hooks():
    (part,) = trainer().parts
    assert part.layer_context is no_layer_context


@pytest.mark.gpu
@pytest.mark.parametrize(("recompute", "batch"), [("none", 8), ("selective", 8), ("full", 64)])
def test_on_a_gpu_activation_offload_lowers_the_peak_and_keeps_gradients(recompute, batch):
    """With full recomputation layer inputs must outweigh the gradients that the backward pass allocates."""
    model = ModelShape(
        name="wide", layers=12, hidden_size=1024, heads=8, kv_heads=8, head_size=128, ffn_size=4096, vocab_size=256, rope_theta=1e4
    )
    peaks, gradients = [], []
    for offload in (False, True):
        one = trainer(
            model, Workload(seq_len=1024, global_batch=batch, precision="bf16"), torch.device("cuda", 0),
            activation_offload=offload, recompute=recompute,
        )  # fmt: skip
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        one.accumulate(one.batch(0))
        peaks.append(torch.cuda.max_memory_allocated() - before)
        gradients.append([parameter.grad.clone() for parameter in one.parameters()])
        del one
    assert peaks[1] < peaks[0]
    for here, there in zip(*gradients, strict=True):  # flash attention's backward pass sums in any order
        assert (here - there).norm() <= 1e-2 * here.norm()
