"""What frameworks keep differently, against bytes counted by hand."""

from dataclasses import replace
from typing import Any

import pytest

from cost.situations import DENSE, WORKLOAD, cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import LayerActivations, layer_activations
from strategist.cost.candidate_arrays import view
from strategist.cost.model_states import lora_parameters
from strategist.cost.price import price
from strategist.expr.columns import row_of, table

P, H, INNER, LAYERS = DENSE.parameters, DENSE.hidden_size, DENSE.ffn_size, DENSE.layers
ENDS = DENSE.embedding_parameters + DENSE.head_parameters
TOKENS = WORKLOAD.seq_len
LORA = replace(WORKLOAD, train="lora")
ALONE, ZERO1 = Layout(), {"reshard_after_forward": False, "no_sync": True}


def memory(stack: Stack, layout: Layout = ALONE, workload: Workload = WORKLOAD, batches: int = 1, **knobs: Any) -> dict[str, float]:
    columns = table([row_of(Candidate(layout=layout, knobs=Knobs(**knobs)), batches)])
    parts = price(DENSE, cluster(), workload, columns, stack=stack).memory
    return {name: float(part[0]) for name, part in parts.items()}


def layer(stack: Stack, workload: Workload = WORKLOAD, **knobs: Any) -> LayerActivations:
    columns = table([row_of(Candidate(layout=ALONE, knobs=Knobs(**knobs)), 1)])
    return layer_activations(DENSE, workload, stack, view(columns, workload))


def keeping(**traits: Any) -> Stack:
    return replace(NATIVE, elementwise="fused", memory_traits=MemoryTraits(**traits))


def test_adapters_are_on_the_linears_that_a_stack_adapts() -> None:
    """Inputs and outputs of rank 16: of queries and the projection 1024 + 1024, of keys and values 1024 + 512."""
    assert lora_parameters(DENSE, 16, "attention") == 16 * LAYERS * (2 * 2048 + 2 * 1536)
    assert lora_parameters(DENSE, 16, "query_value") == 16 * LAYERS * (2048 + 1536)
    assert lora_parameters(DENSE, 16) == 16 * LAYERS * (2 * 2048 + 2 * 1536 + 3 * (H + INNER))


def test_a_frozen_feed_forward_saves_no_input_that_no_adapter_reads() -> None:
    """The input of its first two matmuls and that of the last one, in bf16."""
    everywhere, attention = (layer(replace(keeping(), adapters=name), LORA) for name in ("all", "attention"))
    assert everywhere.autograd_bytes[0] - attention.autograd_bytes[0] == 2 * TOKENS * (H + INNER)
    for workload, stack in ((WORKLOAD, keeping()), (replace(LORA, train="qlora"), keeping(quantized_matmul_inputs=True))):
        alike = (layer(replace(stack, adapters=name), workload) for name in ("all", "attention"))
        assert len({float(found.autograd_bytes[0]) for found in alike}) == 1


def test_a_frozen_base_in_float8_takes_a_byte_but_for_embedding_and_head() -> None:
    found = memory(keeping(frozen_bytes=1.0), workload=LORA)
    assert found["parameters"] == pytest.approx((P - ENDS) + 2 * ENDS + 4 * lora_parameters(DENSE, 16), rel=1e-3)


def test_what_goes_into_the_activation_may_be_saved_in_float8() -> None:
    half, whole = (layer(keeping(float8_activations=on), float8="tensorwise") for on in (True, False))
    assert whole.autograd_bytes[0] - half.autograd_bytes[0] == TOKENS * 2 * INNER
    assert layer(keeping(float8_activations=True)).autograd_bytes[0] == layer(keeping()).autograd_bytes[0]


def test_inputs_saved_in_float8_leave_no_product_in_fp32_beside_them() -> None:
    """Of inputs of the hidden size two and of the feed-forward's last matmul a byte less, and attention's output once more."""
    eager = replace(keeping(quantized_inputs=True), elementwise="eager")
    plain, quantized = (layer(eager, float8=name).autograd_bytes[0] for name in ("none", "tensorwise"))
    assert plain - quantized == TOKENS * (2 * H + INNER - DENSE.attended_width)


@pytest.mark.parametrize(
    ("traits", "offload", "bytes_each"),
    [("all", "all", 0.0), ("all", "optimizer", 4.0), ("optimizer", "optimizer", 0.0), ("never", "all", 4.0)],
)
def test_an_offload_takes_gradients_along_where_the_framework_does(traits: str, offload: str, bytes_each: float) -> None:
    found = memory(keeping(gradients_on_host=traits), Layout(dp_shard=8), batches=2, offload=offload, recompute="full")
    assert found["gradients"] == pytest.approx(bytes_each * P / 8, rel=0.01)


def test_layers_whose_activations_are_away_hold_none() -> None:
    none, quarter, every = (memory(keeping(layers_away=float(layers)))["activations"] for layers in (0, 4, 99))
    assert none - quarter == pytest.approx((none - every) / 4)
    assert none - every == pytest.approx(LAYERS * float(layer(keeping()).autograd_bytes[0]))


def test_copies_in_float8_take_a_byte_and_embedding_and_head_two() -> None:
    found = memory(keeping(float8_parameters=True), Layout(dp_shard=8), float8="tensorwise", **ZERO1)
    assert found["unsharded_parameters"] == pytest.approx(P - ENDS + 2 * ENDS, rel=1e-3)
    alone = [
        memory(keeping(float8_parameters=True), workload=replace(WORKLOAD, precision="bf16-true"), float8=name)
        for name in ("none", "tensorwise")
    ]
    assert alone[1]["unsharded_parameters"] - alone[0]["unsharded_parameters"] == pytest.approx(P - ENDS, rel=1e-3)


def test_tensors_with_places_of_their_own_leave_no_blocks_between_them() -> None:
    columns = table([row_of(Candidate(layout=Layout(dp_shard=8), knobs=Knobs()), 1)])
    for once in (True, False):
        parts = price(DENSE, cluster(allocator_slack=0.2), WORKLOAD, columns, stack=keeping(allocates_once=once)).memory
        assert bool(parts["allocator"][0] + parts["cache"][0]) is not once
