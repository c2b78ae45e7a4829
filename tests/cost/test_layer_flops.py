"""FLOPs of a layer, and its launched kernels: latent attention, experts, recomputation."""

from dataclasses import replace
from typing import Any

import pytest

from cost.situations import DENSE, EXPERTS, WORKLOAD, cluster, estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import MLAShape, ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import View, view
from strategist.cost.layer_flops import LayerWork, computed_tokens, layer_work, model_flops_per_token
from strategist.cost.model_states import adapter_inputs, lora_parameters
from strategist.cost.price import price
from strategist.cost.rates import expert_matmuls
from strategist.expr.columns import row_of, table

LATENT = replace(
    DENSE, kv_heads=16, mla=MLAShape(query_rank=0, key_value_rank=64, rope_head_size=32, nope_head_size=64, value_head_size=48)
)  # fmt: skip
UNFUSED = replace(NATIVE, attention="unfused")
KERNELS = {"tiles": NATIVE, "masks": replace(NATIVE, windows="masked"), "scores": UNFUSED}
STREAMS = replace(NATIVE, experts="streams")
ALL = WORKLOAD.seq_len


def view_of(layout: Layout, **knobs: Any) -> View:
    candidate = Candidate(layout=layout, knobs=Knobs(**knobs))
    return view(table([row_of(candidate, candidate.accumulation(WORKLOAD))]), WORKLOAD)


def work(model: ModelShape, layout: Layout | None = None, stack: Stack = NATIVE, **knobs: Any) -> LayerWork:
    return layer_work(model, WORKLOAD, stack, view_of(layout or Layout(), **knobs))


def test_latent_attention_flops_use_key_and_value_widths() -> None:
    """Scores over 96 elements per head, weighted values over 48; the causal half of 2 FLOPs each."""
    found = work(LATENT).attention_flops[0]
    assert found == ALL * ALL * 16 * (96 + 48)
    attention_flops = model_flops_per_token(LATENT, WORKLOAD) - 6 * (LATENT.parameters - LATENT.embedding_parameters)
    assert attention_flops == 6 * 16 * ALL * 16 * (96 + 48)


def test_eager_kernels_move_attention_scores_more_often_than_fused_kernels() -> None:
    """Twice as often in half precision, and in fp32 three times."""

    def moved(elementwise: str, precision: str) -> float:
        workload, stack = replace(WORKLOAD, precision=precision), replace(UNFUSED, elementwise=elementwise)
        each = view(table([row_of(Candidate(layout=Layout(), knobs=Knobs()), 1)]), workload)
        flash = layer_work(DENSE, workload, replace(stack, attention="flash"), each).moved_bytes[0]
        return float(layer_work(DENSE, workload, stack, each).moved_bytes[0] - flash) / (ALL * 16 * ALL)

    assert [moved("fused", "bf16-true"), moved("eager", "bf16-true"), moved("eager", "fp32")] == [12, 21, 37]


def test_each_norm_of_a_layer_reads_and_writes_its_input() -> None:
    """Two passes of 2 bytes a value in the forward pass."""
    eager = replace(NATIVE, elementwise="eager")
    shapes = (replace(DENSE, layer_norms=norms) for norms in (1, 2, 4))
    one, two, four = (work(shape, Layout(dp_shard=8), eager).moved_bytes[0] for shape in shapes)
    each = 2 * 2 * DENSE.hidden_size * ALL
    assert (two - one, four - two) == (each, 2 * each)


def test_inputs_of_fp32_adapters_are_cast_unless_the_base_has_4_bits() -> None:
    """Without a cast only the dropout passes over the inputs, in half precision, and the outputs of 4-bit linears are copied."""

    def moved(train: str, casts: bool, **knobs: Any) -> float:
        workload, stack = replace(WORKLOAD, train=train), replace(NATIVE, casts_adapters=casts)
        each = view(table([row_of(Candidate(layout=Layout(), knobs=Knobs(**knobs)), 1)]), workload)
        return float(layer_work(DENSE, workload, stack, each).moved_bytes[0]) / ALL

    read = adapter_inputs(DENSE)
    written = lora_parameters(DENSE, 1) / DENSE.layers - read
    assert moved("lora", True) - moved("lora", False) == pytest.approx(21 * read + 4 * written)
    assert moved("qlora", True) - moved("qlora", False) == pytest.approx(5 * read + 8 * written)
    assert moved("lora", True, compile=True) - moved("lora", False, compile=True) == pytest.approx(2 * read)
    assert moved("full", True) == moved("full", False)


def test_adapters_of_megatron_pass_over_inputs_and_outputs_kernel_by_kernel() -> None:
    """Adapters of the output projection beside those of queries, keys and values: its input is read, dropped out and written (7
    bytes, 15 backward), and its output written, scaled and added (12 bytes, 8 backward).
    """

    def moved(adapters: str) -> tuple[float, float]:
        stack = replace(NATIVE, family="megatron", elementwise="fused", adapters=adapters)
        each = view(table([row_of(Candidate(layout=Layout(), knobs=Knobs()), 1)]), replace(WORKLOAD, train="lora"))
        found = layer_work(DENSE, replace(WORKLOAD, train="lora"), stack, each)
        return float(found.moved_bytes[0]) / ALL, float(found.moved_backward_bytes[0]) / ALL

    (forward, backward), (more, more_backward) = moved("query_key_value"), moved("attention")
    h = DENSE.hidden_size
    assert (more - forward, more_backward - backward) == pytest.approx((7 * h + 12 * h, 15 * h + 8 * h))


@pytest.mark.parametrize(("model", "adapters"), [(DENSE, "all"), (DENSE, "query_value"), (LATENT, "all"), (EXPERTS, "attention")])
def test_adapters_read_and_write_what_their_parameters_count(model: ModelShape, adapters: str) -> None:
    """A linear with as many inputs as outputs has twice its inputs; all of a model together differ by its outputs."""
    ends, read = lora_parameters(model, 1, adapters) / model.layers, adapter_inputs(model, adapters)
    assert 0 < read < ends
    square = replace(model, kv_heads=model.heads, ffn_size=model.hidden_size)
    if model.mla is None and model.query_width == model.hidden_size:
        assert lora_parameters(square, 1, adapters) / square.layers == 2 * adapter_inputs(square, adapters)


def test_unfused_attention_computes_the_masked_half() -> None:
    assert work(DENSE, stack=UNFUSED).attention_flops[0] == 2 * work(DENSE).attention_flops[0]


def test_dense_and_expert_flops_sum_to_the_active_parameters() -> None:
    found = work(EXPERTS)
    active = EXPERTS.attention_parameters + 2 * EXPERTS.expert_parameters
    assert found.matmul_flops + found.expert_flops == pytest.approx(2 * ALL * active)
    assert found.expert_flops == pytest.approx(2 * ALL * 2 * EXPERTS.expert_parameters)
    assert work(DENSE).expert_flops == 0


def test_expert_parallelism_makes_matmuls_per_expert_larger() -> None:
    """2048 tokens with 2 of 8 experts: 512 tokens per expert on one rank, 8 times as many if each of 8 ranks has one expert."""
    one = 2 * 512 * 1024 * 2048
    assert work(EXPERTS).expert_size == pytest.approx(8 * one)
    assert work(EXPERTS, stack=STREAMS).expert_size == pytest.approx(4 * one)
    alone = Layout(dp_shard=8, ep=8)
    assert work(EXPERTS, alone, STREAMS).expert_size == work(EXPERTS, alone).expert_size == pytest.approx(8 * one)


def test_small_expert_matmuls_are_slower() -> None:
    small = replace(EXPERTS.moe, experts=128, experts_per_token=32, expert_ffn_size=128)
    v, device, stack = view_of(Layout()), cluster().device, replace(NATIVE, experts="sliced")
    few, many = (
        expert_matmuls(layer_work(model, WORKLOAD, stack, v), WORKLOAD, device, v).seconds(NEUTRAL.factors, 1e30)
        for model in (EXPERTS, replace(EXPERTS, moe=small))
    )
    assert many > 1.1 * few


def test_cuda_graphs_reduce_kernel_launches() -> None:
    stacks = [replace(STREAMS, graphs=graphs) for graphs in ("none", "layers", "step")]
    alone, layers, step = (work(EXPERTS, stack=stack) for stack in stacks)
    assert alone.kernels > layers.kernels == step.kernels == 0
    assert alone.routing_kernels > layers.routing_kernels > step.routing_kernels == 0
    assert alone.awaited_kernels == layers.awaited_kernels > step.awaited_kernels == 0
    assert alone.expert_kernels == layers.expert_kernels > step.expert_kernels == 0
    dense = work(DENSE, stack=STREAMS)
    assert dense.routing_kernels == dense.awaited_kernels == dense.expert_kernels == 0


def test_recomputation_launches_the_forward_pass_again_with_its_collectives() -> None:
    """32 of 80 launches of a layer's tensor-parallel collectives are of its forward pass; torch leaves out a layer's last sum."""

    def collectives(recompute: str, stack: Stack = NATIVE) -> float:
        alone, split = (work(DENSE, Layout(tp=tp), stack, recompute=recompute).kernels[0] for tp in (1, 8))
        return float(split - alone)

    assert collectives("none") == 80
    assert collectives("full") == 80 + 32 / 2
    assert collectives("full", replace(NATIVE, recomputes="all")) == 80 + 32


def test_separate_kernels_per_expert_add_awaited_launches() -> None:
    """Slices of one parameter are launched from Python, other kernels by one call of a library."""
    together, sliced, streams = (work(EXPERTS, stack=replace(NATIVE, experts=kind)) for kind in ("grouped", "sliced", "streams"))
    assert (together.awaited_kernels, together.expert_kernels) == (60, 0)
    assert (sliced.awaited_kernels, sliced.expert_kernels) == (60 + 8 * 20, 0)
    assert (streams.awaited_kernels, streams.expert_kernels) == (60, 8 * 20)
    assert work(EXPERTS, Layout(dp_shard=8, ep=8), STREAMS).expert_kernels == 20


def test_full_recomputation_routes_again() -> None:
    """All 60 awaited launches are of the forward pass, 15 of the 90 others, and two of an expert's six matmuls."""
    plain, again = (work(EXPERTS, stack=STREAMS, recompute=how) for how in ("none", "full"))
    assert again.awaited_kernels == 2 * plain.awaited_kernels
    assert again.routing_kernels - plain.routing_kernels == pytest.approx(15)
    assert again.expert_kernels == pytest.approx(4 / 3 * plain.expert_kernels)


def test_a_slow_host_delays_python_launches_but_not_launches_of_a_library() -> None:
    columns = table([row_of(Candidate(layout=Layout(), knobs=Knobs(micro_batch=4)), 8)])
    on, slow = cluster(1, 1), Calibration(routing=2.0)
    once, twice = (price(EXPERTS, on, WORKLOAD, columns, each, STREAMS).time["launch"][0] for each in (NEUTRAL, slow))
    awaited = 8 * 16 * 60 * on.device.launch_seconds
    assert twice - once == pytest.approx(awaited, rel=0.1)


@pytest.mark.parametrize(("model", "slows"), [(DENSE, "kernels"), (EXPERTS, "both")])
def test_routing_says_nothing_of_layers_without_experts(model: ModelShape, slows: str) -> None:
    """On a host that is slower than the device."""
    columns = table([row_of(Candidate(layout=Layout(), knobs=Knobs()), 32)])
    on = cluster(1, 1, launch_seconds=1e-4)
    once, kernels, routing = (
        price(model, on, WORKLOAD, columns, each, STREAMS).step_seconds[0]
        for each in (NEUTRAL, Calibration(kernels=1.2), Calibration(routing=1.2))
    )
    assert kernels > 1.05 * once
    assert routing == pytest.approx(once) if slows == "kernels" else routing > 1.05 * once


def test_biases_that_python_adds_expert_by_expert_take_launches_and_traffic() -> None:
    """Also a kernel an expert: but not in a graph of the whole step, which cannot contain them."""
    biased = replace(EXPERTS, ffn_bias=True)
    plain, added = work(EXPERTS, stack=STREAMS), work(biased, stack=STREAMS)
    assert added.routing_kernels - plain.routing_kernels == 8 * 10
    routed_values = 2048 * 2 * 1024
    assert added.moved_bytes - plain.moved_bytes == pytest.approx(12 * routed_values)
    assert added.moved_backward_bytes - plain.moved_backward_bytes == pytest.approx(16 * routed_values)
    for stack in (NATIVE, replace(STREAMS, graphs="step")):
        assert work(biased, stack=stack).moved_bytes == work(EXPERTS, stack=stack).moved_bytes


def test_clamps_of_their_own_move_and_save_a_gated_activations_input_once_more() -> None:
    clamped = replace(EXPERTS, activation_limit=7.0)
    plain, found = work(EXPERTS, stack=STREAMS), work(clamped, stack=STREAMS)
    values = 2048 * 2 * 2 * 2048
    assert found.moved_bytes - plain.moved_bytes == pytest.approx(8 * values)
    assert found.activations.autograd_bytes - plain.activations.autograd_bytes == pytest.approx(2 * values)
    assert work(clamped).moved_bytes == work(EXPERTS).moved_bytes


def test_awaited_launches_are_exposed_even_if_the_device_is_busy() -> None:
    """A host that is half as fast again still launches ahead of large layers, but not of expert layers."""
    slow = 1.5 * cluster().device.launch_seconds
    for model, shows in ((DENSE, 0.0), (EXPERTS, 16 * 60 * slow * 8)):
        found = estimate(Layout(), model, micro_batch=4, on=cluster(1, 1, launch_seconds=slow)).time.launch
        assert found == pytest.approx(shows, rel=0.1, abs=0.01)


def test_casts_once_per_step_save_the_casts_of_each_pass() -> None:
    once = replace(NATIVE, casts_once=True)
    each, kept = (work(DENSE, stack=stack, float8="tensorwise", compile=True).cast_bytes[0] for stack in (NATIVE, once))
    assert each - kept == pytest.approx(5 * (DENSE.attention_parameters + 3 * 1024 * 4096))


def test_casts_to_float8_take_each_matmul_input_and_each_gradient_of_an_output_once() -> None:
    """Inputs: 2 h, attention's output and the inner width; gradients: 2 h, queries, keys, values and twice the inner width. torch
    casts a saved input again, Transformer Engine has saved it in float8 and casts before it gathers.
    """
    saved = replace(NATIVE, casts_once=True, memory_traits=replace(NATIVE.memory_traits, quantized_inputs=True))
    plain = replace(NATIVE, casts_once=True)
    split = {"layout": Layout(tp=2), "sequence_parallel": True}
    for stack, options, inputs, gradients in (
        (plain, {}, 2048 + 1024 + 4096, 2048 + 2048 + 8192 + 7168),
        (saved, {}, 2048 + 1024 + 4096, 2048 + 2048 + 8192),
        (saved, split, (2048 + 1024 + 4096) / 2, (2048 + 2048 + 8192) / 2),
        (plain, split, 2048 + (1024 + 4096) / 2, 2 * 2048 + (2048 + 8192 + 1024 + 4096) / 2),
    ):
        found = work(DENSE, stack=stack, float8="tensorwise", compile=True, **options)
        assert (found.cast_bytes[0], found.cast_backward_bytes[0]) == (5 * ALL * inputs, 5 * ALL * gradients)
    assert work(DENSE).cast_bytes[0] == 0


def test_a_scale_per_row_casts_gradients_twice_and_columns_slowly() -> None:
    """Inputs and gradients as above. A weight's gradient sums over tokens, so that scales are per column: 16 bytes a value."""
    inputs, gradients = 2048 + 1024 + 4096, 2048 + 2048 + 8192
    found = work(DENSE, stack=replace(NATIVE, casts_once=True), float8="rowwise", compile=True)
    assert found.cast_bytes[0] == 5 * ALL * inputs
    assert found.cast_backward_bytes[0] == ALL * (5 * gradients + 16 * (gradients + inputs))


def test_each_expert_casts_its_own_copy_of_a_token() -> None:
    plain = replace(NATIVE, casts_once=True)
    moved = [
        work(replace(EXPERTS, moe=replace(EXPERTS.moe, experts_per_token=count)), None, plain, float8="tensorwise", compile=True)
        for count in (1, 2)
    ]
    assert moved[1].cast_bytes[0] - moved[0].cast_bytes[0] == pytest.approx(5 * ALL * (1024 + EXPERTS.moe.expert_ffn_size))


def test_selective_recomputation_trades_saved_matmuls_for_repeated_ones() -> None:
    """Outputs of a layer's matmuls: 2 h, queries, keys and values, and twice the inner width."""
    all_, second, none = (
        work(DENSE, recompute="selective", saved_operations=f"{group}attention")
        for group in ("matmul+", "every_second_matmul+", "")
    )
    outputs = 2 * ALL * (2 * 1024 + 1024 + 1024 + 4096 * 2)
    assert all_.activations.saved_bytes - second.activations.saved_bytes == outputs / 2
    assert all_.activations.saved_bytes - none.activations.saved_bytes == outputs
    down = 1024 * 4096 / (DENSE.attention_parameters + 3 * 1024 * 4096)  # the last one, which nothing that is saved needs
    assert [one.repeated_matmuls[0] for one in (all_, second, none)] == [
        0,
        pytest.approx(0.5 * (1 - down)),
        pytest.approx(1 - down),
    ]
    assert all(one.repeated == 0 and one.repeated_elementwise == 1 for one in (all_, second, none))
    halves = replace(NATIVE, memory_traits=replace(NATIVE.memory_traits, selective_matmuls=0.5))  # as torchtitan saves matmuls
    framework = work(DENSE, stack=halves, recompute="selective", saved_operations="matmul+attention")
    assert framework.repeated_matmuls[0] == second.repeated_matmuls[0]


def test_attention_that_is_computed_again_takes_one_more_forward_pass_and_saves_no_scores() -> None:
    """arXiv 2205.05198: 5 a s bytes for each value of the hidden size; with other recomputation the layer is repeated anyway."""
    repeats = replace(UNFUSED, recomputes_attention=True)
    again, once = (work(DENSE, stack=stack) for stack in (repeats, UNFUSED))
    assert (again.repeated[0] - once.repeated[0], again.repeated_matmuls[0]) == (1, 0)
    assert once.activations.saved_bytes - again.activations.saved_bytes == pytest.approx(5 * 16 * ALL * ALL, rel=0.01)
    assert again.moved_backward_bytes[0] > once.moved_backward_bytes[0]
    whole = [work(DENSE, stack=stack, recompute="full") for stack in (repeats, UNFUSED)]
    assert whole[0].repeated[0] == whole[1].repeated[0]
    assert whole[0].moved_backward_bytes[0] == whole[1].moved_backward_bytes[0]


def test_matmuls_of_experts_can_be_among_those_that_selective_recomputation_repeats() -> None:
    """Outputs of the routed experts' first two matmuls are then not saved."""
    none = replace(NATIVE, memory_traits=replace(NATIVE.memory_traits, saves_experts=False))
    saved, repeated = (
        work(EXPERTS, stack=stack, recompute="selective", saved_operations="matmul+attention") for stack in (NATIVE, none)
    )
    assert EXPERTS.moe is not None
    inner = EXPERTS.moe.experts_per_token * EXPERTS.moe.expert_ffn_size
    assert saved.activations.saved_bytes - repeated.activations.saved_bytes == 2 * ALL * 2 * inner
    assert saved.repeated_matmuls[0] == 0 < repeated.repeated_matmuls[0]
    dense = [work(DENSE, stack=stack, recompute="selective", saved_operations="matmul+attention") for stack in (NATIVE, none)]
    assert dense[0].activations.saved_bytes == dense[1].activations.saved_bytes
    assert dense[1].repeated_matmuls[0] == 0


def test_saved_collectives_are_not_repeated() -> None:
    """Of a layer's four collectives, two gather inputs, which sequence parallelism repeats; no other operation needs the output of
    the last sum.
    """
    tensor = Layout(tp=4)
    for split, repeated in ((True, (0.75, 0.5)), (False, (0.5, 0.0))):
        found = [
            work(DENSE, tensor, recompute="selective", sequence_parallel=split, saved_operations=saved)
            for saved in ("matmul+attention", "matmul+attention+collectives")
        ]
        assert tuple(one.repeated_sums[0] for one in found) == repeated
        assert not split or found[1].activations.saved_bytes - found[0].activations.saved_bytes == 2 * ALL * 2 * 1024 / 4
    experts = [
        work(EXPERTS, Layout(dp_shard=8, ep=8), recompute="selective", saved_operations=saved)
        for saved in ("attention", "attention+collectives")
    ]
    assert [one.repeated_exchanges[0] for one in experts] == [1, 0]
    assert experts[1].activations.saved_bytes > experts[0].activations.saved_bytes


def test_attention_flops_count_documents_only() -> None:
    """For document lengths spread evenly around their mean m, a token's own document has (4 m - 1) / 3 tokens on average over
    tokens.
    """
    packed = replace(WORKLOAD, document_tokens=64)
    whole, found = (layer_work(DENSE, each, NATIVE, view_of(Layout())).attention_flops[0] for each in (WORKLOAD, packed))
    assert found / whole == pytest.approx(85 / WORKLOAD.seq_len)
    assert replace(WORKLOAD, document_tokens=WORKLOAD.seq_len).attended_tokens == WORKLOAD.seq_len


@pytest.mark.parametrize(("window", "measured"), [(512, (0.298, 0.306)), (1024, (0.482, 0.496))])
def test_windowed_kernels_take_the_measured_share_of_full_attention(window: int, measured: tuple[float, float]) -> None:
    """Backward pass with 4,096 tokens and 16 heads of 64 on a Blackwell RTX, FlashAttention-2 and cuDNN
    (github.com/NVIDIA/cudnn-frontend pull request 505).
    """
    long = replace(WORKLOAD, seq_len=4096)
    share = computed_tokens(replace(DENSE, sliding_window=window), long, NATIVE) / computed_tokens(DENSE, long, NATIVE)
    assert share == pytest.approx(measured[0], rel=0.05)
    assert share == pytest.approx(measured[1], rel=0.08)


def test_attention_of_windowed_layers_is_that_of_their_mask_and_kernel() -> None:
    """Every second layer has a window; a mask costs all pairs of the sequence, and scores in memory are of all pairs anyway."""
    windowed = replace(DENSE, sliding_window=64, full_attention_every=2)
    flops = {name: work(windowed, stack=stack).attention_flops[0] for name, stack in KERNELS.items()}
    full = work(DENSE).attention_flops[0]
    assert full / 2 < flops["tiles"] < full
    assert flops["masks"] == 1.5 * full
    assert flops["scores"] == 2 * full
    assert work(replace(DENSE, sliding_window=ALL), stack=KERNELS["masks"]).attention_flops[0] == full


def test_masks_of_windows_are_saved_by_each_windowed_layer() -> None:
    """2 bytes for each pair of a sequence, the same for all heads."""
    stack, windowed = KERNELS["masks"], replace(DENSE, sliding_window=64, full_attention_every=2)
    saved = [work(model, stack=stack, micro_batch=2).activations.autograd_bytes[0] for model in (windowed, DENSE)]
    assert saved[0] - saved[1] == 2 * 2 * ALL * ALL / 2


def test_model_flops_count_twice_the_pairs_of_windowed_layers() -> None:
    windowed, pairs = replace(DENSE, sliding_window=ALL // 4), ALL * (1 - 7 / 16)
    fewer_flops = model_flops_per_token(DENSE, WORKLOAD) - model_flops_per_token(windowed, WORKLOAD)
    assert fewer_flops == pytest.approx(6 * DENSE.layers * (DENSE.query_width + DENSE.attended_width) * pairs)
