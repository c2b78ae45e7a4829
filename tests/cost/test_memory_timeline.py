"""Memory at the candidate peaks of a step: bytes counted by hand, as the simulator shows them."""

from dataclasses import replace
from typing import Any

import pytest

from cost.situations import DENSE, WORKLOAD, cluster, estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.stack import NATIVE
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Parts, view
from strategist.cost.layer_flops import layer_work
from strategist.cost.model_states import stages
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.stacks import load_stack

HEAD = DENSE.head_parameters
ENDS = DENSE.embedding_parameters + HEAD
LAYER = (DENSE.parameters - ENDS - DENSE.hidden_size) / DENSE.layers
ZERO3, STAGES = Layout(dp_shard=8), Layout(pp=4, dp_shard=2)
TOKENS = WORKLOAD.seq_len
HIDDEN = TOKENS * DENSE.hidden_size
LOGITS = TOKENS * DENSE.vocab_size
SHORT = Workload(seq_len=128, global_batch=8)
WIDE = replace(DENSE, vocab_size=131072)


def memory_of_stages(precision: str, schedule: str, accumulation: int = 16, **knobs: Any) -> tuple[Parts, Parts]:
    """Memory of the first and of the last of four stages."""
    chosen = Knobs(pp_schedule=schedule, no_sync=True, **knobs)
    columns = table([row_of(Candidate(layout=STAGES, knobs=chosen), accumulation)])
    priced = price(DENSE, cluster(), replace(WORKLOAD, precision=precision), columns)
    first, last = ({name: part[0] for name, part in parts.items()} for parts in (priced.first_stage, priced.last_stage))
    return first, last


def test_the_heads_gradient_waits_for_the_embeddings_gradient() -> None:
    """Besides gathered embedding and head: two gathered layers, and a layer's gradients with the buffer of the previous one."""
    memory = estimate(ZERO3, workload=replace(SHORT, precision="fp32"), recompute="full").memory
    assert memory.unsharded_parameters == pytest.approx(4 * (ENDS + 2 * LAYER), rel=1e-3)
    assert memory.communication == pytest.approx(4 * HEAD + (4 + 4) * LAYER, rel=1e-3)
    reduced = 4 / 8 * (DENSE.parameters - ENDS - LAYER)  # neither embedding and head nor the layer in its backward pass
    assert memory.gradients == pytest.approx(reduced, rel=1e-3)


def test_first_gathered_parameters_coexist_with_their_all_gather_buffer() -> None:
    """Embedding, head and first layer, each twice, in the forward pass of a second micro-batch."""
    workload = replace(SHORT, global_batch=32, precision="fp32")
    memory = estimate(ZERO3, WIDE, workload, recompute="full").memory
    ends = WIDE.embedding_parameters + WIDE.head_parameters
    assert memory.unsharded_parameters == pytest.approx(2 * 4 * (ends + LAYER), rel=1e-3)
    assert memory.gradients == pytest.approx(4 / 8 * WIDE.parameters, rel=1e-3)
    assert memory.activations == memory.logits == memory.communication == 0


def test_tied_embeddings_have_two_gradients_and_their_sum() -> None:
    memory = estimate(ZERO3, replace(WIDE, tied_embeddings=True), SHORT, recompute="full").memory
    assert memory.unsharded_parameters == 2 * WIDE.head_parameters
    assert memory.communication == pytest.approx(3 * 2 * WIDE.head_parameters + 4 * LAYER, rel=1e-3)


@pytest.mark.parametrize("train", ["lora", "qlora"])
def test_replicas_of_a_frozen_model_gather_nothing(train: str) -> None:
    """Neither embedding nor head has a gradient, so that their backward pass needs no second copy of them."""
    memory = estimate(Layout(dp_replicate=8), replace(WIDE, layers=2), replace(SHORT, train=train), recompute="full").memory
    assert memory.unsharded_parameters == 0


def test_a_layers_gradients_replace_its_activations_in_the_backward_pass() -> None:
    """Without recomputation, eight layers with many tokens: gradients of the last layer appear as its activations are freed."""
    model = replace(DENSE, layers=8, vocab_size=256)
    memory = estimate(ZERO3, model, replace(WORKLOAD, precision="fp32")).memory
    assert memory.communication == pytest.approx(4 * model.head_parameters, rel=1e-3)  # and no layer's gradients yet
    width = 2 * 1024 + 2 * 1024 + 3 * 1024 + 4 * 4096  # norms' outputs and inputs, queries, attended, keys and values; inner
    kept = TOKENS * (4 * width + 4 * DENSE.heads)
    weight = 1024 * 4096  # of the last matmul, whose output is freed before two inner gradients exist
    assert memory.activations == 8 * kept + 4 * (TOKENS * (1024 + 2 * 4096) + weight)


def test_at_large_tp_gathered_tensors_and_gradients_do_not_all_coexist() -> None:
    """Full recomputation, sequence parallel: inputs of attention and feed-forward, and the gathered gradient of the output, besides
    five inner tensors and a weight's gradient; with wide inner tensors six of those, after the gathered gradient is freed.
    """
    layout, knobs = Layout(dp_shard=2, tp=4), {"recompute": "full", "sequence_parallel": True}
    for width, whole, inner in ((4096, 3, 5), (16384, 2, 6)):
        model = replace(DENSE, layers=1, vocab_size=256, ffn_size=width)
        memory = estimate(layout, model, replace(WORKLOAD, precision="fp32"), **knobs).memory
        shards = 3 * 1024 + 3 * 1024  # input, sum and gradient; queries, keys and values, attended
        width_of_all = whole * 1024 + (inner * width + shards) / 4
        assert memory.activations == 4 * (TOKENS * (width_of_all + DENSE.heads / 4) + 1024 * width / 4)


def test_with_no_sync_the_reduction_buffer_does_not_coexist_with_activations_in_flight() -> None:
    """An accumulated gradient has no buffer while all micro-batches are in flight."""
    first, _ = memory_of_stages("fp32", "1f1b", recompute="full")
    assert first["communication"] == 0
    assert first["gradients"] == pytest.approx(4 * (DENSE.embedding_parameters + 4 * LAYER), rel=1e-3)


@pytest.mark.parametrize(
    ("layout", "schedule", "virtual", "first", "last"),
    [
        (Layout(dp_shard=8), "1f1b", 1, 0.5, 0.5),
        (Layout(pp=16), "1f1b", 1, 1.0, 0.0),
        (Layout(pp=4), "interleaved_1f1b", 4, 1.0, 0.0),
        (Layout(pp=4), "interleaved_1f1b", 2, 0.5, 0.5),
        (Layout(pp=8), "zbv_zero_bubble", 2, 15 / 16, 0.5),
    ],
)
def test_every_second_layer_of_the_model_is_recomputed(
    layout: Layout, schedule: str, virtual: int, first: float, last: float
) -> None:
    """A stage with one layer saves or recomputes its activations, by the layer's index in the model."""
    knobs = Knobs(pp_schedule=schedule, pp_virtual_stages=virtual, recompute="every_second_layer")
    columns = table([row_of(Candidate(layout=layout, knobs=knobs), 16)])
    found = stages(DENSE, view(columns, WORKLOAD))
    assert [float(stage.recomputed_share[0]) for stage in found] == [first, last]  # type: ignore[index]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_stage_without_layers_has_no_gradients() -> None:
    """Split by parameters, a large head leaves the last stage no layer; in a V-shaped schedule the head is on the first rank."""
    knobs = Knobs(pp_schedule="dual_pipe_v", pp_virtual_stages=2, no_sync=True)
    columns = table([row_of(Candidate(layout=STAGES, knobs=knobs), 16)])
    last = price(WIDE, cluster(), WORKLOAD, columns, stack=load_stack("nanotron")).last_stage
    assert last["gradients"] == last["unsharded_parameters"] == 0


@pytest.mark.parametrize("cp", [2, 4])
def test_ring_attention_backward_keeps_keys_and_values_of_all_ranks(cp: int) -> None:
    """In units of the hidden size, which is also the width of queries, of the output, and of keys with values: these tensors in
    bf16, the output twice; fp32 gradients of queries twice, of keys and values three times; those of the kernel, for half the
    queries; keys and values that are sent, and those of all ranks. In addition the layer's input, whole for matmuls, and the
    residual's gradient.
    """
    columns = table([row_of(Candidate(layout=Layout(cp=cp), knobs=Knobs()), 32)])
    found = layer_work(DENSE, WORKLOAD, NATIVE, view(columns, WORKLOAD)).activations.attention_backward_bytes
    ring = 2 * (1 + 2 + 1) + 4 * 2 + 4 * 3 + 2 * (1 / 2 + 1) + 2 * (1 + cp)
    assert float(found[0]) == (ring + 2 * 3) * HIDDEN / cp


def test_interleaved_1f1b_peak_at_the_last_stages_loss() -> None:
    """The last of eight stages of two layers computes its loss; the rank's other stage has just run a backward pass. In flight are
    four micro-batches of that stage and one of the last: inputs of ten layers, four outputs, an input and a gradient received in
    advance, and the inputs of the last norm and of the head.
    """
    _, last = memory_of_stages("bf16", "interleaved_1f1b", pp_virtual_stages=2, recompute="full")
    assert last["unsharded_parameters"] == pytest.approx(2 * (HEAD + 2 * LAYER), rel=1e-3)
    assert last["activations"] == (10 + 4 + 2 + 2) * 2 * HIDDEN
    assert last["logits"] == 12 * LOGITS


def test_gpipe_peak_at_the_second_loss() -> None:
    """Fifteen micro-batches wait, each with log-softmax and the inputs of last norm and head; torch has resharded no layer."""
    _, last = memory_of_stages("fp32", "gpipe", recompute="full")
    assert last["gradients"] == last["unsharded_parameters"] == pytest.approx(4 * (HEAD + 4 * LAYER), rel=1e-3)
    assert last["logits"] == (12 + 4 + 14 * 4) * LOGITS + 14 * 2 * 4 * HIDDEN
    assert last["activations"] == (15 * 4 + 2) * 4 * HIDDEN


def test_zbv_keeps_unreduced_weight_gradients_until_the_next_pass() -> None:
    """In bf16, besides the sums in fp32: those of the second stage's two layers and of the head. The logits are freed."""
    half, _ = memory_of_stages("bf16", "zbv_zero_bubble", pp_virtual_stages=2, reshard_after_forward=False)
    full, _ = memory_of_stages("fp32", "zbv_zero_bubble", pp_virtual_stages=2, reshard_after_forward=False)
    sums = 4 * (ENDS + 4 * LAYER)
    assert half["gradients"] == pytest.approx(sums + 2 * (HEAD + 2 * LAYER), rel=1e-3)
    assert full["gradients"] == pytest.approx(sums, rel=1e-3)
    assert half["logits"] == full["logits"] == 12 * LOGITS


def test_zbv_with_recomputation_keeps_each_repetitions_activations() -> None:
    """Two layers, each recomputed nine times: for the gradients of inputs, of seven matmuls' weights and of the norms. All
    repetitions but one leave outputs of matmuls and of attention, and the tensors between gate and down-projection.
    """
    first, _ = memory_of_stages("fp32", "zbv_zero_bubble", pp_virtual_stages=2, reshard_after_forward=False, recompute="full")
    made = (3 * 1024 + 4 * 4096) * TOKENS * 4
    again = made + 3 * 4 * HIDDEN + 4 * DENSE.heads * TOKENS
    backward = 4 * (TOKENS * (1024 + 2 * 4096) + 1024 * 4096)
    in_flight = 3 * 4 + 1 + 7  # inputs of layers, and outputs of stages
    assert first["activations"] == in_flight * 4 * HIDDEN + 2 * (again + 8 * made) + backward
    assert first["logits"] == 4 * LOGITS  # their gradient


def test_pipeline_stages_with_replicas_use_fsdp2_mixed_precision() -> None:
    """The head of the last stage has a bf16 copy (autocast would copy layers as well), and gradients are accumulated in fp32."""
    layout, knobs = Layout(pp=4, dp_replicate=2), Knobs(pp_schedule="1f1b", no_sync=True)
    columns = table([row_of(Candidate(layout=layout, knobs=knobs), 16)])
    last = price(DENSE, cluster(), WORKLOAD, columns).last_stage
    assert float(last["unsharded_parameters"][0]) == 2 * HEAD
    assert float(last["gradients"][0]) == pytest.approx(4 * (HEAD + 4 * LAYER), rel=1e-3)


@pytest.mark.parametrize(("schedule", "batches"), [("interleaved_1f1b", 4), ("looped_bfs", 4), ("looped_bfs", 16)])
def test_stages_with_sequential_backward_passes_do_not_coexist_unsharded(schedule: str, batches: int) -> None:
    """The first of a rank's two stages runs its backward pass while all micro-batches' activations of both are saved, and only its
    gradients and parameters are unsharded; the other runs after it, together with shards of the first one's gradients.
    """
    first, _ = memory_of_stages("fp32", schedule, batches, pp_virtual_stages=2, recompute="full")
    several, _ = memory_of_stages("fp32", "interleaved_1f1b", 16, pp_virtual_stages=2, recompute="full")
    of_all = DENSE.layers / 4 * LAYER + DENSE.embedding_parameters
    assert several["gradients"] == pytest.approx(4 * of_all, rel=1e-3)
    ahead, alone = 4 * 2 * LAYER, 4 * (2 * LAYER + DENSE.embedding_parameters) + 4 / 2 * of_all / 2
    assert first["gradients"] == pytest.approx(ahead if batches == 16 else alone, rel=1e-3)


def test_a_streamed_head_is_unsharded_at_the_loss() -> None:
    """With many tokens, however few of all rounds belong to one device."""
    knobs = {"offload": "streamed", "recompute": "full", "pp_schedule": "gpipe", "no_sync": True}
    memory = estimate(Layout(pp=8), WIDE, WORKLOAD, **knobs).memory
    assert memory.logits > memory.activations
    layer = WIDE.dense_layer_parameters
    assert memory.unsharded_parameters == pytest.approx(2 * (WIDE.head_parameters + layer), rel=1e-3)  # which is copied meanwhile
    assert memory.gradients == 4 * WIDE.head_parameters
