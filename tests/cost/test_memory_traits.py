"""Memory traits of frameworks, against bytes counted by hand."""

from dataclasses import replace
from typing import Any

import pytest

from cost.situations import DENSE, WORKLOAD, cluster
from strategist.contract.estimate import MemoryParts
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.loss import Loss
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import LayerActivations, layer_activations
from strategist.cost.calibration import NEUTRAL
from strategist.cost.candidate_arrays import view
from strategist.cost.model_states import NF4_BYTES, lora_parameters
from strategist.cost.pipeline_ranks import step_memory
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.stacks import load_stack

P, H, INNER, LAYERS = DENSE.parameters, DENSE.hidden_size, DENSE.ffn_size, DENSE.layers
ENDS = DENSE.embedding_parameters + DENSE.head_parameters
TOKENS = WORKLOAD.seq_len
LORA = replace(WORKLOAD, train="lora")
ALONE, ZERO1 = Layout(), {"reshard_after_forward": False, "no_sync": True}


def memory(stack: Stack, layout: Layout = ALONE, workload: Workload = WORKLOAD, batches: int = 1, **knobs: Any) -> dict[str, float]:
    columns = table([row_of(Candidate(layout=layout, knobs=Knobs(**knobs)), batches)])
    parts = price(DENSE, cluster(), workload, columns, stack=stack).memory
    return {name: float(part[0]) for name, part in parts.items()}


def at(instant: str, stack: Stack, layout: Layout, workload: Workload = WORKLOAD, **knobs: Any) -> MemoryParts:
    """Memory at a candidate peak of the step."""
    columns = table([row_of(Candidate(layout=layout, knobs=Knobs(**knobs)), 1)])
    found = step_memory(DENSE, cluster(), workload, columns, NEUTRAL, stack)
    return next(item.memory for item in found if item.name == instant)


def layer(stack: Stack, workload: Workload = WORKLOAD, **knobs: Any) -> LayerActivations:
    columns = table([row_of(Candidate(layout=ALONE, knobs=Knobs(**knobs)), 1)])
    return layer_activations(DENSE, workload, stack, view(columns, workload))


def stack_with(**traits: Any) -> Stack:
    return replace(NATIVE, elementwise="fused", memory_traits=MemoryTraits(**traits))


def test_lora_parameters_follow_the_adapted_linears() -> None:
    """Inputs and outputs of rank 16: queries and projection 1024 + 1024, keys and values 1024 + 512."""
    assert lora_parameters(DENSE, 16, "attention") == 16 * LAYERS * (2 * 2048 + 2 * 1536)
    assert lora_parameters(DENSE, 16, "query_value") == 16 * LAYERS * (2048 + 1536)
    assert lora_parameters(DENSE, 16) == 16 * LAYERS * (2 * 2048 + 2 * 1536 + 3 * (H + INNER))


def test_a_frozen_feed_forward_without_adapters_saves_no_matmul_inputs() -> None:
    """The input of its first two matmuls and that of the last one, in bf16."""
    everywhere, attention = (layer(replace(stack_with(), adapters=name), LORA) for name in ("all", "attention"))
    assert everywhere.autograd_bytes[0] - attention.autograd_bytes[0] == 2 * TOKENS * (H + INNER)
    for workload, stack in ((WORKLOAD, stack_with()), (replace(LORA, train="qlora"), stack_with(quantized_matmul_inputs=True))):
        alike = (layer(replace(stack, adapters=name), workload) for name in ("all", "attention"))
        assert len({float(found.autograd_bytes[0]) for found in alike}) == 1


def test_a_float8_frozen_base_takes_one_byte_except_embedding_and_head() -> None:
    found = memory(stack_with(frozen_bytes=1.0), workload=LORA)
    assert found["parameters"] == pytest.approx((P - ENDS) + 2 * ENDS + 4 * lora_parameters(DENSE, 16), rel=1e-3)


def test_inputs_of_the_activation_function_can_be_saved_in_float8() -> None:
    half, whole = (layer(stack_with(float8_activations=on), float8="tensorwise") for on in (True, False))
    assert whole.autograd_bytes[0] - half.autograd_bytes[0] == TOKENS * 2 * INNER
    assert layer(stack_with(float8_activations=True)).autograd_bytes[0] == layer(stack_with()).autograd_bytes[0]


def test_quantized_matmul_inputs_take_one_byte_per_value() -> None:
    """Inputs of the hidden size of two matmuls and of the feed-forward's last one are a byte smaller; attention's output is saved
    once more.
    """
    eager = replace(stack_with(quantized_inputs=True), elementwise="eager")
    plain, quantized = (layer(eager, float8=name).autograd_bytes[0] for name in ("none", "tensorwise"))
    assert plain - quantized == TOKENS * (2 * H + INNER - DENSE.attended_width)


@pytest.mark.parametrize(
    ("traits", "offload", "bytes_each"),
    [("all", "all", 0.0), ("all", "optimizer", 4.0), ("optimizer", "optimizer", 0.0), ("never", "all", 4.0)],
)
def test_gradients_are_offloaded_by_the_frameworks_rule(traits: str, offload: str, bytes_each: float) -> None:
    found = memory(stack_with(gradients_on_host=traits), Layout(dp_shard=8), batches=2, offload=offload, recompute="full")
    assert found["gradients"] == pytest.approx(bytes_each * P / 8, rel=0.01)


def test_a_sharded_4_bit_base_is_gathered_in_4_bits() -> None:
    """Embedding and head in bf16, two layers as they are stored."""
    found = at("last layer backward", NATIVE, Layout(dp_shard=8), replace(LORA, train="qlora"), recompute="full")
    layers = 2 * (P - ENDS - H) / LAYERS
    assert found.unsharded_parameters == pytest.approx(2 * ENDS + layers * NF4_BYTES, rel=1e-3)


def test_copies_of_sharded_parameters_are_sharded_and_their_fp32_copies_are_offloaded_with_the_optimizer() -> None:
    """ZeRO-3: a shard in bf16 beside embedding and head; in the optimizer step the shard alone."""
    copies = stack_with(parameters="copies", gradients_on_host="optimizer")
    found = memory(copies, Layout(dp_shard=8), recompute="full")
    away = memory(copies, Layout(dp_shard=8), recompute="full", offload="optimizer")
    assert found["parameters"] == pytest.approx(4 * P / 8, rel=1e-3)
    assert away["parameters"] == away["optimizer"] == away["gradients"] == 0.0
    assert away["unsharded_parameters"] == found["unsharded_parameters"] >= 2 * P / 8
    fp32 = memory(copies, Layout(dp_shard=8), replace(WORKLOAD, precision="fp32"), recompute="full", offload="optimizer")
    assert fp32["parameters"] == pytest.approx(4 * P / 8, rel=1e-3)


@pytest.mark.parametrize("stage", [{}, ZERO1], ids=["ZeRO-3", "ZeRO-1"])
def test_a_step_copies_and_casts_its_gradients(stage: dict[str, bool]) -> None:
    """Gradients in bf16 once more, and in fp32, at the optimizer step: 6 bytes each."""
    stacks = [replace(stack_with(parameters="copies", flattens_gradients=flat), gradient_bytes=2.0) for flat in (False, True)]
    plain, flat = (at("optimizer step", stack, Layout(dp_shard=8), **stage).allocated for stack in stacks)
    assert flat - plain == pytest.approx(6 * P / 8, rel=1e-3)


def test_deepspeed_updates_a_billion_sharded_parameters_at_a_time() -> None:
    """DeepSpeedExamples 45b4b715, training/bf16_master_weight: 31.38 GiB on each of 4 H100 with ZeRO-3."""
    model = ModelShape(
        name="example", layers=32, hidden_size=4096, heads=32, kv_heads=32, head_size=128, ffn_size=16384, vocab_size=50000,
        ffn_matrices=2,
    )  # fmt: skip
    columns = table([row_of(Candidate(layout=Layout(dp_shard=4), knobs=Knobs(recompute="full")), 1)])
    workload = Workload(seq_len=512, global_batch=4)
    parts = price(model, cluster(gpus_per_node=4), workload, columns, stack=load_stack("deepspeed")).memory
    assert sum(float(part[0]) for name, part in parts.items() if name not in ("allocator", "cache")) == pytest.approx(
        31.38 * 2**30, rel=0.02
    )


def test_fsdp1_keeps_inputs_of_recomputed_layers_with_their_gradients_if_the_base_is_frozen() -> None:
    """At the backward pass of the first layer: the inputs of all other layers, and the gradients of all but two."""
    layout, stacks = Layout(dp_shard=8), [stack_with(keeps_inputs=keeps) for keeps in (False, True)]

    freed, kept = (at("first layer backward", stack, layout, LORA, recompute="full").allocated for stack in stacks)
    assert kept - freed == (2 * LAYERS - 3) * 2 * TOKENS * H
    for workload, recompute in ((WORKLOAD, "full"), (LORA, "none")):
        freed, kept = (at("first layer backward", stack, layout, workload, recompute=recompute).allocated for stack in stacks)
        assert kept == freed


def test_blocks_of_logits_that_cannot_be_reused_are_allocator_overhead() -> None:
    cached = replace(NATIVE, loss=Loss(cached_logit_bytes=4.0))
    columns = table([row_of(Candidate(layout=ALONE, knobs=Knobs()), 1)])
    plain, more = (price(DENSE, cluster(allocator_slack=0.2), WORKLOAD, columns, stack=stack).memory for stack in (NATIVE, cached))
    assert float(more["allocator"][0] - plain["allocator"][0]) == 4 * TOKENS * DENSE.vocab_size


def test_offloaded_layers_keep_no_activations_on_the_device() -> None:
    none, quarter, every = (memory(stack_with(layers_away=float(layers)))["activations"] for layers in (0, 4, 99))
    assert none - quarter == pytest.approx((none - every) / 4)
    assert none - every == pytest.approx(LAYERS * float(layer(stack_with()).autograd_bytes[0]))


def test_float8_parameter_copies_take_one_byte_except_embedding_and_head() -> None:
    found = memory(stack_with(float8_parameters=True), Layout(dp_shard=8), float8="tensorwise", **ZERO1)
    assert found["unsharded_parameters"] == pytest.approx(P - ENDS + 2 * ENDS, rel=1e-3)
    alone = [
        memory(stack_with(float8_parameters=True), workload=replace(WORKLOAD, precision="bf16-true"), float8=name)
        for name in ("none", "tensorwise")
    ]
    assert alone[1]["unsharded_parameters"] - alone[0]["unsharded_parameters"] == pytest.approx(P - ENDS, rel=1e-3)


def test_static_allocation_has_no_allocator_overhead() -> None:
    columns = table([row_of(Candidate(layout=Layout(dp_shard=8), knobs=Knobs()), 1)])
    for once in (True, False):
        parts = price(DENSE, cluster(allocator_slack=0.2), WORKLOAD, columns, stack=stack_with(allocates_once=once)).memory
        assert bool(parts["allocator"][0] + parts["cache"][0]) is not once
