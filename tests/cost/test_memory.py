"""Memory, against bytes counted by hand."""

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


def test_adamw_keeps_sixteen_bytes_a_parameter_cut_by_eight() -> None:
    memory = estimate(ZERO3, micro_batch=1).memory
    assert memory.parameters == pytest.approx(4 * P / 8, rel=1e-3)
    assert memory.optimizer == pytest.approx(8 * P / 8, rel=1e-3)
    assert memory.gradients == pytest.approx(4 * P / 8, rel=1e-3)
    assert model_state_bytes(DENSE, WORKLOAD) == 16 * P


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"), [("adamw", 8.0), ("adamw8bit", 2.03125), ("sgd", 0.0)], ids=["adamw", "8-bit", "sgd"]
)
def test_each_optimizer_has_its_own_states(optimizer: str, bytes_each: float) -> None:
    memory = estimate(ZERO3, workload=replace(WORKLOAD, optimizer=optimizer)).memory
    assert memory.optimizer == pytest.approx(bytes_each * P / 8, rel=1e-3)


def test_replicas_hold_everything_and_compute_in_copies_of_what_is_multiplied() -> None:
    """A layer that is computed again makes its own copies again, and looking up an embedding needs none."""
    memory, again = (estimate(Layout(dp_replicate=8), recompute=recompute).memory for recompute in ("none", "full"))
    whole = (memory.parameters, memory.gradients, memory.optimizer, memory.unsharded_parameters)
    assert whole == pytest.approx((4 * P, 4 * P, 8 * P, 2 * (P - DENSE.embedding_parameters)), rel=1e-3)
    assert again.unsharded_parameters == 2 * DENSE.head_parameters
    fp32 = estimate(Layout(dp_replicate=8), workload=replace(WORKLOAD, precision="fp32")).memory
    assert fp32.unsharded_parameters == 0.0


def test_autocast_leaves_sums_in_fp32_and_copies_the_inputs_of_each_linear() -> None:
    """Beside bf16 parameters of FSDP2: two inputs of norms a layer and one of the last norm are 2 bytes wider, and queries, keys
    and values, gate and up-projection each have their own copy of what one would do for."""
    replicas, sharded = (estimate(layout).memory.activations for layout in (Layout(dp_replicate=8), ZERO3))
    more = 2 * 2 + 2 * 2 + 1 * 2
    assert replicas - sharded == WORKLOAD.seq_len * DENSE.hidden_size * (DENSE.layers * more + 2)


def test_at_the_loss_live_the_inputs_of_the_last_norm_and_of_the_head() -> None:
    """Beside the input of each layer that is computed again."""
    found = estimate(ZERO3, workload=replace(WORKLOAD, seq_len=8192), recompute="full").memory
    assert found.logits == 12 * 8192 * DENSE.vocab_size
    assert found.activations == (DENSE.layers + 2) * 2 * 8192 * DENSE.hidden_size


def test_resharding_frees_the_layers_by_the_time_of_the_loss() -> None:
    """Where activations are so few that the loss is the worst instant; one layer and the next come back after it."""
    freed = estimate(ZERO3, recompute="full").memory.unsharded_parameters
    kept = estimate(ZERO3, recompute="full", reshard_after_forward=False).memory.unsharded_parameters
    half = estimate(ZERO3, recompute="full", reshard_after_forward="subgroup", reshard_group_size=4).memory.unsharded_parameters
    assert freed == pytest.approx(2 * ENDS, rel=1e-3)
    assert kept == pytest.approx(2 * (16 * LAYER + ENDS), rel=1e-3)
    assert half == pytest.approx(2 * (16 * LAYER / 4 + ENDS), rel=1e-3)


def test_postponed_gradients_wait_unsharded_in_the_type_of_their_reduction() -> None:
    now = estimate(ZERO3).memory.gradients
    later = estimate(ZERO3, no_sync=True).memory.gradients
    halved = estimate(ZERO3, no_sync=True, reduce_dtype="bf16").memory.gradients
    assert (now, later, halved) == pytest.approx((4 * P / 8, 4 * P, 2 * P), rel=1e-3)


def test_offload_moves_bytes_to_the_hosts() -> None:
    none, optimizer, everything = (estimate(ZERO3, offload=name) for name in ("none", "optimizer", "all"))
    assert none.host_memory_bytes_per_node == 0
    assert optimizer.memory.optimizer == 0
    assert optimizer.memory.parameters == none.memory.parameters
    assert everything.memory.parameters == everything.memory.optimizer == everything.memory.gradients == 0
    assert everything.host_memory_bytes_per_node == 16 * P
    assert everything.peak_memory_bytes < optimizer.peak_memory_bytes < none.peak_memory_bytes


def test_offloading_the_optimizer_of_adapters_leaves_the_base_on_the_devices() -> None:
    workload, adapters = replace(WORKLOAD, train="lora"), lora_parameters(DENSE, 16)
    optimizer, everything = (estimate(ZERO3, workload=workload, offload=name) for name in ("optimizer", "all"))
    assert optimizer.host_memory_bytes_per_node == pytest.approx(16 * adapters)
    assert everything.host_memory_bytes_per_node == pytest.approx(2 * P + 16 * adapters)


def test_streamed_stages_leave_two_layers_and_the_head_on_a_device() -> None:
    found = estimate(Layout(pp=8), recompute="full", offload="streamed", pp_schedule="gpipe")
    assert found.memory.parameters == found.memory.optimizer == 0
    assert found.memory.unsharded_parameters <= 2 * (2 * LAYER + DENSE.head_parameters) * 1.001
    assert found.memory.gradients == 4 * DENSE.head_parameters  # of earlier micro-batches, as the next one's loss is made
    waiting = 11 * WORKLOAD.seq_len * DENSE.layers * DENSE.hidden_size * 2  # inputs of all layers, for a third of 32 micro-batches
    assert found.host_memory_bytes_per_node == 18 * P + waiting  # and the copies in the compute type that travel


def test_qlora_keeps_a_four_bit_base_and_whole_adapters() -> None:
    adapters = lora_parameters(DENSE, 16)
    memory = estimate(ZERO3, workload=replace(WORKLOAD, train="qlora")).memory
    base = (P - ENDS) * NF4_BYTES + ENDS * 2
    assert memory.parameters == pytest.approx((base + 4 * adapters) / 8, rel=1e-3)
    assert memory.optimizer == pytest.approx(8 * adapters / 8, rel=1e-3)
    assert memory.gradients <= 4 * adapters / 8 * 1.001


def test_stages_of_a_pipeline_hold_as_many_micro_batches_as_their_schedule_keeps() -> None:
    def activations(schedule: str, **knobs: int) -> float:
        return estimate(Layout(pp=4, dp_shard=2), pp_schedule=schedule, no_sync=True, **knobs).memory.activations

    alone = estimate(ZERO3).memory.activations / 4  # one micro-batch on a quarter of the layers
    assert activations("1f1b") == pytest.approx(4 * alone, rel=0.1)
    assert activations("gpipe") == pytest.approx(16 * alone, rel=0.1)
    assert activations("interleaved_1f1b", pp_virtual_stages=2) == pytest.approx(5.5 * alone, rel=0.1)


def test_expert_parallel_ranks_gather_only_their_experts() -> None:
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
def test_torch_allocates_what_one_rank_under_fake_tensors_does(
    model: str, tp: int, dp: int, micro_batch: int, seq_len: int, recompute: str, gib: float
) -> None:
    """``gib``: peak of one rank of FSDP2 and tensor parallelism on torch 2.13 with a fake process group, bf16 with fp32 sums and
    AdamW, on the model as torchtitan wrote it in 2024 (its selective checkpointing saves every second matmul,
    and collectives). Its embedding is torch's own style, whose gradient has all rows on every rank: 1.7 GiB more of 70B as it goes
    back, which may be the fullest instant of the row of 19.7."""
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


def test_stages_split_by_parameters_give_the_head_fewer_layers() -> None:
    """28 layers and a head that weighs 3.6 of them, on four stages: 8, 8, 8 and 4 (nanotron's stages of its 3B model)."""
    shape = replace(DENSE, layers=28, hidden_size=3072, heads=32, kv_heads=32, head_size=96, ffn_size=8192, vocab_size=131072)
    columns = table([row_of(Candidate(layout=Layout(pp=4, dp_shard=2), knobs=Knobs(no_sync=True)), 16)])
    first, last = stages(shape, view(columns, WORKLOAD), MemoryTraits(split="parameters"))
    even = stages(shape, view(columns, WORKLOAD))
    assert (first.layers[0], last.layers[0]) == (8, 4)
    assert [stage.layers[0] for stage in even] == [7, 7]


def test_whole_copies_and_gradients_stay_where_the_optimizer_alone_is_sharded() -> None:
    """ZeRO-1: 2 + 4 bytes of all parameters, and 12 of a share (arXiv 1910.02054, section 3.1)."""
    layout, knobs = Layout(dp_shard=8), Knobs(reshard_after_forward=False, no_sync=True, recompute="full")
    columns = table([row_of(Candidate(layout=layout, knobs=knobs), 1)])
    priced = price(DENSE, CLUSTER, WORKLOAD, columns, stack=replace(TITAN, memory_traits=MemoryTraits(parameters="copies")))
    kept = sum(float(priced.memory[name][0]) for name in ("parameters", "unsharded_parameters", "gradients", "optimizer"))
    assert kept == pytest.approx((6 + 12 / 8) * P, rel=1e-3)


@pytest.mark.parametrize(("train", "bytes_each"), [("lora", 2.0), ("qlora", NF4_BYTES)])
def test_a_frozen_base_is_whole_and_there_once_where_the_optimizer_alone_is_sharded(train: str, bytes_each: float) -> None:
    columns = table([row_of(Candidate(layout=ZERO3, knobs=Knobs(reshard_after_forward=False)), 1)])
    stack = replace(TITAN, memory_traits=MemoryTraits(parameters="copies"))
    memory = price(DENSE, CLUSTER, replace(WORKLOAD, train=train), columns, stack=stack).memory
    adapters = 4 * lora_parameters(DENSE, 16) / 8
    assert memory["parameters"][0] == pytest.approx((P - ENDS) * bytes_each + ENDS * 2 + adapters, rel=1e-3)
    assert memory["unsharded_parameters"][0] == 0


def test_each_end_of_a_pipeline_has_its_own_memory() -> None:
    priced = price(DENSE, CLUSTER, WORKLOAD, table([row_of(Candidate(layout=Layout(pp=4, dp_shard=2), knobs=PIPELINED), 4)]))
    first, last = (sum(float(part[0]) for part in parts.values()) for parts in (priced.first_stage, priced.last_stage))
    assert float(priced.peak_memory_bytes[0]) == max(first, last)
    assert float(priced.first_stage["logits"][0]) == 0.0
    assert first != last


def test_each_further_communicator_takes_room_of_a_device() -> None:
    one, two = (
        price(DENSE, CLUSTER, WORKLOAD, table([row_of(Candidate(layout=layout, knobs=Knobs()), 1)])).room_bytes[0]
        for layout in (Layout(dp_shard=8), Layout(dp_shard=4, tp=2))
    )
    assert one == CLUSTER.device.usable_memory_bytes
    assert one - two == COMMUNICATOR_BYTES


def test_logits_are_counted_in_full_or_in_shards() -> None:
    short = Workload(seq_len=128, global_batch=256)
    layout = Layout(tp=8)
    settings = {"recompute": "full", "micro_batch": 64, "sequence_parallel": True}
    whole = estimate(layout, workload=short, **settings).memory.logits
    parts = estimate(layout, workload=short, loss_parallel=True, **settings).memory.logits
    assert whole == 12 * 64 * 128 * DENSE.vocab_size
    assert parts in (0.0, whole / 8 * 16 / 12)  # nothing where another instant is now the worst


@pytest.mark.parametrize(("loss", "kept"), [(Loss(chunks=8.0), 0), (Loss(chunks=8.0, fused=True), 2 * DENSE.head_parameters)])
def test_a_loss_in_pieces_has_the_logits_of_one_and_if_it_is_fused_gradients_of_all(loss: Loss, kept: int) -> None:
    """Of the head and of its input, in bf16."""
    candidate = Candidate(layout=Layout(), knobs=Knobs(micro_batch=8, recompute="full"))
    v = view(table([row_of(candidate, candidate.accumulation(WORKLOAD))]), WORKLOAD)
    found, logits = loss_memory(DENSE, WORKLOAD, replace(NATIVE, loss=loss), v), 8 * WORKLOAD.seq_len * DENSE.vocab_size
    of_inputs = 2 * 8 * WORKLOAD.seq_len * DENSE.hidden_size if kept else 0
    assert float(found.peak_bytes[0]) == 12 * logits / 8 + kept + of_inputs


degrees = st.sampled_from([1, 2, 4, 8])
recomputes = st.sampled_from(["none", "selective", "full"])


@settings(max_examples=60)
@given(dp=degrees, tp=st.sampled_from([1, 2, 4]), recompute=recomputes, reshard=st.booleans())
def test_more_tensor_parallelism_never_takes_more_parameter_bytes(dp: int, tp: int, recompute: str, reshard: bool) -> None:
    knobs = {"recompute": recompute, "reshard_after_forward": reshard}
    less, more = (estimate(Layout(dp_shard=dp, tp=degree), **knobs).memory for degree in (tp, 2 * tp))
    assert more.parameters <= less.parameters
    assert more.optimizer <= less.optimizer


@settings(max_examples=60)
@given(dp=degrees, tp=degrees, micro_batch=st.sampled_from([1, 2, 4]), sequence_parallel=st.booleans())
def test_recomputing_more_never_keeps_more_activations(dp: int, tp: int, micro_batch: int, sequence_parallel: bool) -> None:
    layout, knobs = Layout(dp_shard=dp, tp=tp), {"micro_batch": micro_batch, "sequence_parallel": sequence_parallel and tp > 1}
    none, selective, full = (estimate(layout, recompute=name, **knobs) for name in ("none", "selective", "full"))
    assert full.peak_memory_bytes <= selective.peak_memory_bytes <= none.peak_memory_bytes


@settings(max_examples=60)
@given(layout=st.sampled_from([Layout(dp_shard=4), Layout(dp_replicate=2, tp=2), Layout(pp=2, dp_shard=2)]),
       micro_batch=st.sampled_from([1, 2, 3, 4]), times=st.integers(2, 4), recompute=recomputes,
       offload=st.sampled_from(["none", "optimizer", "all"]))  # fmt: skip
def test_larger_micro_batches_never_take_less_memory(
    layout: Layout, micro_batch: int, times: int, recompute: str, offload: str
) -> None:
    """As many micro-batches a step: with fewer of them, gradients may have less time to wait."""
    knobs = {"recompute": recompute, "offload": offload, "no_sync": layout.pp > 1}
    small, large = (
        estimate(layout, workload=replace(WORKLOAD, global_batch=16 * size), micro_batch=size, **knobs)
        for size in (micro_batch, micro_batch * times)
    )
    assert large.peak_memory_bytes > small.peak_memory_bytes


def test_shared_experts_are_whole_where_tensor_ranks_share_tokens_out() -> None:
    """With etp 1 each of two ranks has them whole, with etp 2 half of them, as of all that is dense."""
    assert EXPERTS.moe is not None
    shared = replace(EXPERTS, moe=replace(EXPERTS.moe, shared_experts=1))
    more = shared.layers * 3 * 1024 * 2048
    for etp, share in ((1, 1.0), (2, 0.5)):
        layout = Layout(dp_shard=4, tp=2, etp=etp)
        beside, without = (estimate(layout, model).memory.parameters for model in (shared, EXPERTS))
        assert beside - without == pytest.approx(4 * more * share / 4)


def test_float8_without_a_compiler_keeps_each_input_of_a_matmul_in_fp32() -> None:
    """Five read the layer's width (queries, keys, values, gate and product), one the heads', one the inner width."""
    plain, float8 = (estimate(ZERO3, micro_batch=1, float8=kind).memory for kind in ("none", "tensorwise"))
    values = 5 * DENSE.hidden_size + DENSE.attended_width + DENSE.ffn_size
    expected = 4 * values * WORKLOAD.seq_len * DENSE.layers
    assert float8.activations - plain.activations == pytest.approx(expected, rel=1e-3)
    compiled = (estimate(ZERO3, micro_batch=1, compile=True, float8=kind).memory for kind in ("none", "tensorwise"))
    assert len({memory.activations for memory in compiled}) == 1


def test_outputs_of_experts_are_saved_only_where_the_router_weighs_them() -> None:
    """Two experts a token, of bf16 outputs of the hidden size."""
    assert EXPERTS.moe is not None
    row = table([row_of(Candidate(layout=ZERO3, knobs=Knobs(micro_batch=1)), 4)])
    stacks = (replace(TITAN, memory_traits=MemoryTraits(expert_outputs=saved)) for saved in (True, False))
    saved, left = (price(EXPERTS, CLUSTER, WORKLOAD, row, stack=stack).memory["activations"][0] for stack in stacks)
    expected = 2 * EXPERTS.moe.experts_per_token * EXPERTS.hidden_size * WORKLOAD.seq_len * EXPERTS.layers
    assert saved - left == pytest.approx(expected, rel=1e-3)


def test_transformer_engine_saves_the_inputs_of_float8_matmuls_in_float8() -> None:
    """One byte less a value of both norms' outputs and of the inner product; the projection's input is one more beside attention's
    output."""
    rows = [row_of(Candidate(layout=ZERO3, knobs=Knobs(micro_batch=1, float8=kind)), 4) for kind in ("none", "tensorwise")]
    plain, float8 = price(DENSE, CLUSTER, WORKLOAD, table(rows), stack=load_stack("megatron-core")).memory["activations"]
    values = 2 * DENSE.hidden_size + DENSE.ffn_size - DENSE.attended_width
    assert plain - float8 == pytest.approx(values * WORKLOAD.seq_len * DENSE.layers, rel=1e-3)
