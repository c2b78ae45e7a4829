"""Memory of a device, against bytes counted by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from cost.situations import DENSE, EXPERTS, WORKLOAD, cluster, estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.loss import Loss
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.stack import NATIVE
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import layer_activations
from strategist.cost.candidate_arrays import view
from strategist.cost.loss_memory import loss_memory
from strategist.cost.memory import COMMUNICATOR_BYTES
from strategist.cost.model_states import NF4_BYTES, lora_parameters, model_state_bytes, stages
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.models import find_preset
from strategist.profiles.stacks import load_stack

P = DENSE.parameters
ENDS = DENSE.embedding_parameters + DENSE.head_parameters
LAYER = (P - ENDS - DENSE.hidden_size) / DENSE.layers
ZERO3 = Layout(dp_shard=8)
CLUSTER = cluster()
PIPELINED = Knobs(no_sync=True, recompute="full")


def test_adamw_needs_16_bytes_per_parameter_sharded_over_8_ranks() -> None:
    memory = estimate(ZERO3, micro_batch=1).memory
    assert memory.parameters == pytest.approx(4 * P / 8, rel=1e-3)
    assert memory.optimizer == pytest.approx(8 * P / 8, rel=1e-3)
    assert memory.gradients == pytest.approx(4 * P / 8, rel=1e-3)
    assert model_state_bytes(DENSE, WORKLOAD) == 16 * P


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"), [("adamw", 8.0), ("adamw8bit", 2.03125), ("sgd", 0.0)], ids=["adamw", "8-bit", "sgd"]
)
def test_optimizer_states_have_the_bytes_of_their_optimizer(optimizer: str, bytes_each: float) -> None:
    memory = estimate(ZERO3, workload=replace(WORKLOAD, optimizer=optimizer)).memory
    assert memory.optimizer == pytest.approx(bytes_each * P / 8, rel=1e-3)


def test_ddp_with_autocast_keeps_full_states_and_bf16_copies_of_weights() -> None:
    """A recomputed layer casts its weights again, and an embedding lookup needs no copy."""
    memory, again = (estimate(Layout(dp_replicate=8), recompute=recompute).memory for recompute in ("none", "full"))
    whole = (memory.parameters, memory.gradients, memory.optimizer, memory.unsharded_parameters)
    assert whole == pytest.approx((4 * P, 4 * P, 8 * P, 2 * (P - DENSE.embedding_parameters)), rel=1e-3)
    assert again.unsharded_parameters == 2 * DENSE.head_parameters
    fp32 = estimate(Layout(dp_replicate=8), workload=replace(WORKLOAD, precision="fp32")).memory
    assert fp32.unsharded_parameters == 0.0


def test_autocast_activations_are_larger_than_those_of_fsdp_mixed_precision() -> None:
    """Relative to FSDP2 with bf16 parameters: two norm inputs per layer and one of the last norm are 2 bytes wider, and queries,
    keys and values, gate and up-projection each have their own copy of a shared input.
    """
    replicas, sharded = (estimate(layout).memory.activations for layout in (Layout(dp_replicate=8), ZERO3))
    more = 2 * 2 + 2 * 2 + 1 * 2
    assert replicas - sharded == WORKLOAD.seq_len * DENSE.hidden_size * (DENSE.layers * more + 2)


def test_memory_at_the_loss_includes_inputs_of_the_last_norm_and_the_head() -> None:
    """Besides the input of each recomputed layer."""
    found = estimate(ZERO3, workload=replace(WORKLOAD, seq_len=8192), recompute="full").memory
    assert found.logits == 12 * 8192 * DENSE.vocab_size
    assert found.activations == (DENSE.layers + 2) * 2 * 8192 * DENSE.hidden_size


def test_resharding_frees_layers_before_the_loss() -> None:
    """With activations so small that the loss is the peak; after the loss, two layers are gathered again."""
    freed = estimate(ZERO3, recompute="full").memory.unsharded_parameters
    kept = estimate(ZERO3, recompute="full", reshard_after_forward=False).memory.unsharded_parameters
    half = estimate(ZERO3, recompute="full", reshard_after_forward="subgroup", reshard_group_size=4).memory.unsharded_parameters
    assert freed == pytest.approx(2 * ENDS, rel=1e-3)
    assert kept == pytest.approx(2 * (16 * LAYER + ENDS), rel=1e-3)
    assert half == pytest.approx(2 * (16 * LAYER / 4 + ENDS), rel=1e-3)


def test_no_sync_keeps_unsharded_gradients_in_the_reduce_dtype() -> None:
    now = estimate(ZERO3).memory.gradients
    later = estimate(ZERO3, no_sync=True).memory.gradients
    halved = estimate(ZERO3, no_sync=True, reduce_dtype="bf16").memory.gradients
    assert (now, later, halved) == pytest.approx((4 * P / 8, 4 * P, 2 * P), rel=1e-3)


def test_offload_moves_states_to_host_memory() -> None:
    none, optimizer, everything = (estimate(ZERO3, offload=name) for name in ("none", "optimizer", "all"))
    assert none.host_memory_bytes_per_node == 0
    assert optimizer.memory.optimizer == 0
    assert optimizer.memory.parameters == none.memory.parameters
    assert everything.memory.parameters == everything.memory.optimizer == everything.memory.gradients == 0
    assert everything.host_memory_bytes_per_node == 16 * P
    assert everything.peak_memory_bytes < optimizer.peak_memory_bytes < none.peak_memory_bytes


def test_host_memory_of_a_node_has_its_share_of_the_shards_and_each_of_its_replicas() -> None:
    for replicas, shards, nodes in ((1, 16, 2), (2, 8, 2), (2, 4, 1), (8, 1, 2)):
        layout, on = Layout(dp_replicate=replicas, dp_shard=shards), cluster(nodes, replicas * shards // nodes)
        knobs = {"offload": "all"} if shards > 1 else {"offload": "optimizer"}
        found = estimate(layout, on=on, **knobs).host_memory_bytes_per_node
        assert found == 16 * P * replicas / nodes, (replicas, shards, nodes)


def test_optimizer_offload_with_lora_keeps_the_base_on_the_device() -> None:
    workload, adapters = replace(WORKLOAD, train="lora"), lora_parameters(DENSE, 16)
    optimizer, everything = (estimate(ZERO3, workload=workload, offload=name) for name in ("optimizer", "all"))
    assert optimizer.host_memory_bytes_per_node == pytest.approx(16 * adapters)
    assert everything.host_memory_bytes_per_node == pytest.approx(2 * P + 16 * adapters)


def test_streamed_offload_keeps_two_layers_and_the_head_on_the_device() -> None:
    found = estimate(Layout(pp=8), recompute="full", offload="streamed", pp_schedule="gpipe")
    assert found.memory.parameters == found.memory.optimizer == 0
    assert found.memory.unsharded_parameters <= 2 * (2 * LAYER + DENSE.head_parameters) * 1.001
    assert found.memory.gradients == 4 * DENSE.head_parameters  # of earlier micro-batches, during the next one's loss
    waiting = 11 * WORKLOAD.seq_len * DENSE.layers * DENSE.hidden_size * 2  # inputs of all layers, for a third of 32 micro-batches
    assert found.host_memory_bytes_per_node == 18 * P + waiting  # and the copies in the compute type that travel


def test_qlora_keeps_a_4_bit_base_and_fp32_adapters() -> None:
    adapters = lora_parameters(DENSE, 16)
    memory = estimate(ZERO3, workload=replace(WORKLOAD, train="qlora")).memory
    base = (P - ENDS) * NF4_BYTES + ENDS * 2
    assert memory.parameters == pytest.approx((base + 4 * adapters) / 8, rel=1e-3)
    assert memory.optimizer == pytest.approx(8 * adapters / 8, rel=1e-3)
    assert memory.gradients <= 4 * adapters / 8 * 1.001


def test_pipeline_activations_scale_with_micro_batches_in_flight() -> None:
    def activations(schedule: str, **knobs: int) -> float:
        return estimate(Layout(pp=4, dp_shard=2), pp_schedule=schedule, no_sync=True, **knobs).memory.activations

    alone = estimate(ZERO3).memory.activations / 4  # one micro-batch on a quarter of the layers
    assert activations("1f1b") == pytest.approx(4 * alone, rel=0.1)
    assert activations("gpipe") == pytest.approx(16 * alone, rel=0.1)
    assert activations("interleaved_1f1b", pp_virtual_stages=2) == pytest.approx(5.5 * alone, rel=0.1)


def test_expert_parallel_ranks_gather_only_their_own_experts() -> None:
    every = estimate(ZERO3, EXPERTS, recompute="full", reshard_after_forward=False).memory.unsharded_parameters
    own = estimate(Layout(dp_shard=8, ep=8), EXPERTS, recompute="full", reshard_after_forward=False).memory.unsharded_parameters
    share = 8 * EXPERTS.expert_parameters * 7 / 8
    assert every - own == pytest.approx(2 * EXPERTS.moe_layers * share, rel=1e-3)


GIB = 2**30
TITAN = load_stack("torchtitan")


@pytest.mark.parametrize(
    ("model", "tp", "dp", "micro_batch", "seq_len", "recompute", "gib"),
    [
        ("Llama 3.1 8B", 1, 8, 2, 8192, "none", 147.8),
        ("Llama 3.1 8B", 1, 8, 2, 8192, "selective", 66.8),
        ("Llama 3.1 8B", 1, 8, 2, 8192, "every_second_layer", 93.8),
        ("Llama 3.1 8B", 1, 8, 2, 8192, "full", 39.7),
        ("Llama 3.1 8B", 1, 128, 2, 8192, "selective", 56.3),
        ("Llama 3.1 8B", 1, 8, 1, 32768, "full", 67.9),
        ("Llama 3.1 8B", 8, 8, 2, 8192, "selective", 13.9),
        ("Llama 3.1 70B", 8, 8, 1, 8192, "none", 65.0),
        ("Llama 3.1 70B", 8, 8, 1, 8192, "selective", 35.5),
        ("Llama 3.1 70B", 8, 8, 1, 8192, "full", 19.7),
        ("Llama 3.1 70B", 8, 32, 16, 8192, "full", 57.6),
    ],
)
def test_memory_matches_the_simulated_allocation_of_a_rank(
    model: str, tp: int, dp: int, micro_batch: int, seq_len: int, recompute: str, gib: float
) -> None:
    """``gib``: peak of one rank of FSDP2 and tensor parallelism on torch 2.13 with a fake process group, bf16 with fp32 sums and
    AdamW, on torchtitan's model of 2024 (its selective checkpointing saves every second matmul, and collectives). Its embedding
    is torch's own style, whose gradient has all rows on every rank: 1.7 GiB more for 70B in the backward pass, which may be the
    peak in the row with 19.7 GiB.
    """
    shape = find_preset(model)
    assert shape is not None
    workload = Workload(seq_len=seq_len, global_batch=dp * micro_batch)
    split, saved = tp > 1, "matmul+attention+collectives"
    knobs = Knobs(
        micro_batch=micro_batch, recompute=recompute, sequence_parallel=split, loss_parallel=split, saved_operations=saved
    )
    columns = table([row_of(Candidate(layout=Layout(dp_shard=dp, tp=tp), knobs=knobs), 1)])
    priced = price(shape, cluster(nodes=dp * tp // 8), workload, columns, stack=TITAN)
    allocated = float(priced.peak_memory_bytes[0] - priced.memory["allocator"][0])
    assert allocated == pytest.approx(gib * GIB, rel=0.055)


def test_splitting_stages_by_parameters_gives_the_last_stage_fewer_layers() -> None:
    """28 layers and a head as large as 3.6 of them, on four stages: 8, 8, 8 and 4 (nanotron's stages of its 3B model)."""
    shape = replace(DENSE, layers=28, hidden_size=3072, heads=32, kv_heads=32, head_size=96, ffn_size=8192, vocab_size=131072)
    columns = table([row_of(Candidate(layout=Layout(pp=4, dp_shard=2), knobs=Knobs(no_sync=True)), 16)])
    first, last = stages(shape, view(columns, WORKLOAD), MemoryTraits(split="parameters"))
    even = stages(shape, view(columns, WORKLOAD))
    assert (first.layers[0], last.layers[0]) == (8, 4)
    assert [stage.layers[0] for stage in even] == [7, 7]


def test_zero1_keeps_unsharded_parameters_and_gradients() -> None:
    """ZeRO-1: 2 + 4 bytes of all parameters, and 12 of a share (arXiv 1910.02054, section 3.1)."""
    layout, knobs = Layout(dp_shard=8), Knobs(reshard_after_forward=False, no_sync=True, recompute="full")
    columns = table([row_of(Candidate(layout=layout, knobs=knobs), 1)])
    priced = price(DENSE, CLUSTER, WORKLOAD, columns, stack=replace(TITAN, memory_traits=MemoryTraits(parameters="copies")))
    kept = sum(float(priced.memory[name][0]) for name in ("parameters", "unsharded_parameters", "gradients", "optimizer"))
    assert kept == pytest.approx((6 + 12 / 8) * P, rel=1e-3)


@pytest.mark.parametrize(("train", "bytes_each"), [("lora", 2.0), ("qlora", NF4_BYTES)])
def test_zero1_keeps_one_unsharded_copy_of_a_frozen_base(train: str, bytes_each: float) -> None:
    columns = table([row_of(Candidate(layout=ZERO3, knobs=Knobs(reshard_after_forward=False)), 1)])
    stack = replace(TITAN, memory_traits=MemoryTraits(parameters="copies"))
    memory = price(DENSE, CLUSTER, replace(WORKLOAD, train=train), columns, stack=stack).memory
    adapters = 4 * lora_parameters(DENSE, 16) / 8
    assert memory["parameters"][0] == pytest.approx((P - ENDS) * bytes_each + ENDS * 2 + adapters, rel=1e-3)
    assert memory["unsharded_parameters"][0] == 0


def test_first_and_last_pipeline_stage_have_their_own_memory() -> None:
    priced = price(DENSE, CLUSTER, WORKLOAD, table([row_of(Candidate(layout=Layout(pp=4, dp_shard=2), knobs=PIPELINED), 4)]))
    first, last = (sum(float(part[0]) for part in parts.values()) for parts in (priced.first_stage, priced.last_stage))
    assert float(priced.peak_memory_bytes[0]) == max(first, last)
    assert float(priced.first_stage["logits"][0]) == 0.0
    assert first != last


def test_each_additional_communicator_reduces_usable_memory() -> None:
    one, two = (
        price(DENSE, CLUSTER, WORKLOAD, table([row_of(Candidate(layout=layout, knobs=Knobs()), 1)])).room_bytes[0]
        for layout in (Layout(dp_shard=8), Layout(dp_shard=4, tp=2))
    )
    assert one == CLUSTER.device.usable_memory_bytes
    assert one - two == COMMUNICATOR_BYTES


def test_loss_parallel_shards_the_logits() -> None:
    short = Workload(seq_len=128, global_batch=256)
    layout = Layout(tp=8)
    settings = {"recompute": "full", "micro_batch": 64, "sequence_parallel": True}
    whole = estimate(layout, workload=short, **settings).memory.logits
    parts = estimate(layout, workload=short, loss_parallel=True, **settings).memory.logits
    assert whole == 12 * 64 * 128 * DENSE.vocab_size
    assert parts in (0.0, whole / 8 * 16 / 12)  # 0 if another point of the step is now the peak


@pytest.mark.parametrize(("loss", "kept"), [(Loss(chunks=8.0), 0), (Loss(chunks=8.0, fused=True), 2 * DENSE.head_parameters)])
def test_a_chunked_loss_keeps_logits_of_one_chunk_and_a_fused_one_all_gradients(loss: Loss, kept: int) -> None:
    """Gradients of the head and of its input, in bf16."""
    candidate = Candidate(layout=Layout(), knobs=Knobs(micro_batch=8, recompute="full"))
    v = view(table([row_of(candidate, candidate.accumulation(WORKLOAD))]), WORKLOAD)
    found, logits = loss_memory(DENSE, WORKLOAD, replace(NATIVE, loss=loss), v), 8 * WORKLOAD.seq_len * DENSE.vocab_size
    of_inputs = 2 * 8 * WORKLOAD.seq_len * DENSE.hidden_size if kept else 0
    assert float(found.peak_bytes[0]) == 12 * logits / 8 + kept + of_inputs


def test_the_chunked_loss_takes_no_memory_that_grows_with_all_logits() -> None:
    """A chunk has half as many tokens as the hidden size: its logits in bf16 and fp32 take 3 bytes for each parameter of the head,
    beside the sum of its gradients in fp32 and the head's input.
    """
    candidate = Candidate(layout=Layout(), knobs=Knobs(micro_batch=8, recompute="full", chunked_loss=True))
    v = view(table([row_of(candidate, candidate.accumulation(WORKLOAD))]), WORKLOAD)
    found, tokens = loss_memory(DENSE, WORKLOAD, NATIVE, v), 8 * WORKLOAD.seq_len
    assert found.peak_bytes[0] == (4 + 3) * DENSE.head_parameters + 2 * tokens * DENSE.hidden_size
    assert found.saved_bytes[0] == 2 * DENSE.head_parameters
    frozen = loss_memory(DENSE, replace(WORKLOAD, train="lora"), NATIVE, v)
    assert frozen.peak_bytes[0] == 3 * DENSE.head_parameters + 2 * tokens * DENSE.hidden_size
    assert frozen.saved_bytes[0] == 0


def test_a_paired_forward_pass_holds_one_more_layer() -> None:
    layout = Layout(dp_shard=8, ep=8)
    paired, alone = (estimate(layout, EXPERTS, ep_overlap=overlap).memory.activations for overlap in (True, False))
    candidate = Candidate(layout=layout, knobs=Knobs())
    v = view(table([row_of(candidate, candidate.accumulation(WORKLOAD))]), WORKLOAD)
    assert paired - alone == pytest.approx(float(layer_activations(EXPERTS, WORKLOAD, NATIVE, v).saved_bytes[0]))


degrees = st.sampled_from([1, 2, 4, 8])
recomputes = st.sampled_from(["none", "selective", "full"])


@settings(max_examples=60)
@given(dp=degrees, tp=st.sampled_from([1, 2, 4]), recompute=recomputes, reshard=st.booleans())
def test_higher_tp_never_needs_more_parameter_memory(dp: int, tp: int, recompute: str, reshard: bool) -> None:
    knobs = {"recompute": recompute, "reshard_after_forward": reshard}
    less, more = (estimate(Layout(dp_shard=dp, tp=degree), **knobs).memory for degree in (tp, 2 * tp))
    assert more.parameters <= less.parameters
    assert more.optimizer <= less.optimizer


@settings(max_examples=60)
@given(dp=degrees, tp=degrees, micro_batch=st.sampled_from([1, 2, 4]), sequence_parallel=st.booleans())
def test_more_recomputation_never_needs_more_memory(dp: int, tp: int, micro_batch: int, sequence_parallel: bool) -> None:
    layout, knobs = Layout(dp_shard=dp, tp=tp), {"micro_batch": micro_batch, "sequence_parallel": sequence_parallel and tp > 1}
    none, selective, full = (estimate(layout, recompute=name, **knobs) for name in ("none", "selective", "full"))
    assert full.peak_memory_bytes <= selective.peak_memory_bytes <= none.peak_memory_bytes


@settings(max_examples=60)
@given(layout=st.sampled_from([Layout(dp_shard=4), Layout(dp_replicate=2, tp=2), Layout(pp=2, dp_shard=2)]),
       micro_batch=st.sampled_from([1, 2, 3, 4]), times=st.integers(2, 4), recompute=recomputes,
       offload=st.sampled_from(["none", "optimizer", "all"]))  # fmt: skip
def test_larger_micro_batches_always_need_more_memory(
    layout: Layout, micro_batch: int, times: int, recompute: str, offload: str
) -> None:
    """With an equal number of micro-batches: fewer of them could shorten the lifetime of gradients."""
    knobs = {"recompute": recompute, "offload": offload, "no_sync": layout.pp > 1}
    small, large = (
        estimate(layout, workload=replace(WORKLOAD, global_batch=16 * size), micro_batch=size, **knobs)
        for size in (micro_batch, micro_batch * times)
    )
    assert large.peak_memory_bytes > small.peak_memory_bytes


def test_shared_experts_are_sharded_by_etp() -> None:
    """With etp 1 each of two tensor-parallel ranks has all shared experts, with etp 2 half of them, like all dense weights."""
    assert EXPERTS.moe is not None
    shared = replace(EXPERTS, moe=replace(EXPERTS.moe, shared_experts=1))
    more = shared.layers * 3 * 1024 * 2048
    for etp, share in ((1, 1.0), (2, 0.5)):
        layout = Layout(dp_shard=4, tp=2, etp=etp)
        with_shared, without = (estimate(layout, model).memory.parameters for model in (shared, EXPERTS))
        assert with_shared - without == pytest.approx(4 * more * share / 4)


def test_eager_float8_saves_each_matmul_input_in_fp32() -> None:
    """Five inputs have the hidden size (queries, keys, values, gate and up-projection), one the attention width, one the inner
    width.
    """
    plain, float8 = (estimate(ZERO3, micro_batch=1, float8=kind).memory for kind in ("none", "tensorwise"))
    values = 5 * DENSE.hidden_size + DENSE.attended_width + DENSE.ffn_size
    expected = 4 * values * WORKLOAD.seq_len * DENSE.layers
    assert float8.activations - plain.activations == pytest.approx(expected, rel=1e-3)
    compiled = (estimate(ZERO3, micro_batch=1, compile=True, float8=kind).memory for kind in ("none", "tensorwise"))
    assert len({memory.activations for memory in compiled}) == 1


def test_expert_outputs_are_saved_only_if_router_weights_scale_them() -> None:
    """bf16 outputs of the hidden size of two experts per token."""
    assert EXPERTS.moe is not None
    row = table([row_of(Candidate(layout=ZERO3, knobs=Knobs(micro_batch=1)), 4)])
    stacks = (replace(TITAN, memory_traits=MemoryTraits(expert_outputs=saved)) for saved in (True, False))
    saved, left = (price(EXPERTS, CLUSTER, WORKLOAD, row, stack=stack).memory["activations"][0] for stack in stacks)
    expected = 2 * EXPERTS.moe.experts_per_token * EXPERTS.hidden_size * WORKLOAD.seq_len * EXPERTS.layers
    assert saved - left == pytest.approx(expected, rel=1e-3)


def test_each_norm_of_a_layer_saves_its_input() -> None:
    """One norm for both halves of a layer saves one input of 2 bytes a value fewer, norms of both outputs save two more."""
    one, two, four = (estimate(ZERO3, model=replace(DENSE, layer_norms=norms)).memory.activations for norms in (1, 2, 4))
    each = 2 * DENSE.hidden_size * WORKLOAD.seq_len * DENSE.layers
    assert (two - one, four - two) == (each, 2 * each)


def test_transformer_engine_saves_the_inputs_of_float8_matmuls_in_float8() -> None:
    """One byte less per value of both norms' outputs and of the inner product; the projection's input is saved in addition to
    attention's output.
    """
    rows = [row_of(Candidate(layout=ZERO3, knobs=Knobs(micro_batch=1, float8=kind)), 4) for kind in ("none", "tensorwise")]
    plain, float8 = price(DENSE, CLUSTER, WORKLOAD, table(rows), stack=load_stack("megatron-core")).memory["activations"]
    values = 2 * DENSE.hidden_size + DENSE.ffn_size - DENSE.attended_width
    assert plain - float8 == pytest.approx(values * WORKLOAD.seq_len * DENSE.layers, rel=1e-3)
