"""Elementwise traffic in prices, against the bytes that torch's operators read and write."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.simulate.cuda_kernel_replacements import cuda_replacements
from strategist_runtime.weights import seeded
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import view
from strategist.cost.elementwise import (
    BIAS_BACKWARD_BYTES,
    BIAS_BYTES,
    CLAMP_BACKWARD_BYTES,
    CLAMP_BYTES,
    FP32_BIAS_BACKWARD_BYTES,
    FP32_BIAS_BYTES,
    WIDE_DROPOUT,
    elementwise_traffic,
)
from strategist.cost.model_states import adapter_inputs, lora_parameters
from strategist.expr.columns import row_of, table

CPU, TOKENS = torch.device("cpu"), 128
SHAPE = ModelShape(name="few", layers=2, hidden_size=256, heads=4, kv_heads=2, head_size=64, ffn_size=896, vocab_size=64)
MOVING = {"_to_copy", "add", "cat", "mul", "neg", "silu", "silu_backward", "sub"}
"""All operators of a layer except matmuls, attention, views and norms."""

pytestmark = pytest.mark.torch


class BytesCounter(TorchDispatchMode):
    """Counts bytes that some operators read and write."""

    def __init__(self, moving=MOVING):
        super().__init__()
        self.moving, self.bytes = moving, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in self.moving:
            self.bytes += sum(item.nbytes for item in tree_leaves((args, found)) if isinstance(item, torch.Tensor))
        return found


def moved_bytes(layers, autocast):
    """Bytes of the forward and of the backward pass of a step with this many layers."""
    with torch.device("meta"):
        model = Decoder(shape := replace(SHAPE, layers=layers))
    seeded.materialise(model, shape, TOKENS, 0, CPU)
    model = model if autocast else model.bfloat16()
    model.forward_context = lambda: torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    tokens = torch.zeros((1, TOKENS), dtype=torch.long)
    with cuda_replacements():
        with BytesCounter() as forward:
            loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        with BytesCounter() as backward:
            loss.backward()
    return forward.bytes, backward.bytes


@pytest.mark.parametrize("autocast", [False, True])
def test_priced_elementwise_traffic_equals_the_counted_bytes(autocast):
    """Norms, which are a single kernel on GPUs only, are added: 2 passes forward, 5 backward each; autocast also casts weights."""
    few, more = moved_bytes(2, autocast), moved_bytes(3, autocast)
    workload = Workload(seq_len=TOKENS, global_batch=2, precision="bf16" if autocast else "bf16-true")
    candidate = Candidate(layout=Layout(), knobs=Knobs())
    priced = elementwise_traffic(SHAPE, workload, NATIVE, view(table([row_of(candidate, 2)]), workload))
    stream, weights = TOKENS * SHAPE.hidden_size * (4 if autocast else 2), 6 * (SHAPE.parameters - 2 * 64 * 256) // 2
    for pass_, norm_passes in ((0, 2), (1, 5)):
        counted = more[pass_] - few[pass_] + 2 * norm_passes * stream - (weights if autocast else 0)
        assert float(priced[pass_][0]) == pytest.approx(counted, rel=0.03)


@pytest.fixture
def tensor_group():
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_priced_copies_of_sequence_shards_equal_those_of_dtensor(micro_batch, tensor_group):
    """A gather and a scatter along the sequence, in each of a layer's two regions and in each pass."""
    shard = torch.zeros((micro_batch, TOKENS // 2, SHAPE.hidden_size), dtype=torch.bfloat16)
    with BytesCounter() as counter:
        gathered = DTensor.from_local(shard, tensor_group, [Shard(1)]).redistribute(tensor_group, [Replicate()]).to_local()
        DTensor.from_local(gathered, tensor_group, [Partial()]).redistribute(tensor_group, [Shard(1)]).to_local()
    workload = Workload(seq_len=TOKENS, global_batch=2, precision="bf16-true")
    candidate = Candidate(layout=Layout(tp=2), knobs=Knobs(micro_batch=micro_batch, sequence_parallel=True))
    columns = view(table([row_of(candidate, 1)]), workload)
    copying, other = (elementwise_traffic(SHAPE, workload, replace(NATIVE, family=family), columns) for family in ("torch", "own"))
    for pass_ in range(2):
        assert float(copying[pass_][0] - other[pass_][0]) == pytest.approx(2 * counter.bytes)


def adapter_bytes(inner, outer):
    """Bytes of the forward and of the backward pass of an adapter with fp32 weights, beside its linear, in the steps of PEFT's
    ``lora.Linear.forward`` without the dropout.
    """
    x = torch.zeros((TOKENS, inner), dtype=torch.bfloat16, requires_grad=True)
    base = torch.zeros((outer, inner), dtype=torch.bfloat16)
    first, second = (torch.zeros(size, requires_grad=True) for size in ((1, inner), (outer, 1)))
    with torch.autocast("cpu", torch.bfloat16), BytesCounter() as forward:
        result = F.linear(x, base)
        result = result + F.linear(F.linear(x.to(first.dtype), first), second) * 2.0
    with BytesCounter() as backward:
        result.backward(torch.zeros_like(result))
    weights = 6 * (inner + outer)  # cast by autocast, and their gradients
    return forward.bytes - weights, backward.bytes - weights


def test_priced_traffic_of_peft_adapters_equals_the_counted_bytes():
    h, kv, inner = SHAPE.hidden_size, SHAPE.key_value_width // 2, SHAPE.ffn_size
    linears = ((h, h), (h, kv), (h, kv), (h, h), (h, inner), (h, inner), (inner, h))
    counted = [sum(found) for found in zip(*(adapter_bytes(*ends) for ends in linears), strict=True)]
    workload = Workload(seq_len=TOKENS, global_batch=2, precision="bf16", train="lora")
    seen = view(table([row_of(Candidate(layout=Layout(), knobs=Knobs()), 2)]), workload)
    cast, plain = (elementwise_traffic(SHAPE, workload, Stack(casts_adapters=kind), seen) for kind in (True, False))
    sums = 3 * lora_parameters(SHAPE, 1) / SHAPE.layers
    for pass_ in range(2):
        more = float(cast[pass_][0] - plain[pass_][0]) / TOKENS + sums - WIDE_DROPOUT * adapter_inputs(SHAPE)
        assert more * TOKENS == pytest.approx(counted[pass_], rel=0.03)


EXPERT_MOVING = MOVING | {"clamp", "ge", "le", "logical_and_", "sum", "where"}
"""All operators that move tokens of experts which add their own biases and clamp their inputs."""


def bytes_of_both_passes(function, *inputs):
    """Bytes of the forward and of the backward pass of a function of these inputs."""
    with BytesCounter(EXPERT_MOVING) as forward:
        result = function(*inputs)
    with BytesCounter(EXPERT_MOVING) as backward:
        result.backward(torch.zeros_like(result))
    return forward.bytes, backward.bytes


def leaf(*size, dtype=torch.bfloat16):
    return torch.zeros(size, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, (BIAS_BYTES, BIAS_BACKWARD_BYTES)),
        (torch.float32, (FP32_BIAS_BYTES, FP32_BIAS_BACKWARD_BYTES)),
    ],
)
def test_biases_added_expert_by_expert_move_the_counted_bytes(dtype, expected):
    """In the steps of Megatron-Core's ``_apply_bias``: four experts with 256 tokens each."""
    hidden, biases = 512, [leaf(512) for _ in range(4)]

    def with_biases(outputs, weights):
        parts = zip(outputs.split(256), biases, weights.split(256), strict=True)
        return torch.cat([part + bias * weight for part, bias, weight in parts]).to(outputs.dtype)

    counted = bytes_of_both_passes(with_biases, leaf(4 * 256, hidden), leaf(4 * 256, 1, dtype=dtype))
    assert [found / (4 * 256 * hidden) for found in counted] == pytest.approx(expected, rel=0.02)


def test_clamps_move_the_counted_bytes():
    def clamped(values):
        gate, up = values.chunk(2, -1)
        return torch.cat([gate.clamp(max=7.0), up.clamp(-7.0, 7.0)], -1)

    counted = bytes_of_both_passes(clamped, leaf(512, 256))
    assert [found / (512 * 256) for found in counted] == pytest.approx((CLAMP_BYTES, CLAMP_BACKWARD_BYTES), rel=0.02)
