"""Step time: overlap of compute and communication, against figures computed by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cost.situations import DENSE, DEVICE, EXPERTS, INTER, INTRA, WORKLOAD, cluster, estimate
from strategist.contract.cluster import Cluster, Link
from strategist.contract.estimate import Estimate
from strategist.contract.layout import Layout
from strategist.cost.calibration import Calibration
from strategist.cost.layer_flops import model_flops_per_token
from strategist.cost.offload import COUNTED_SHARE

TOKENS = WORKLOAD.seq_len
PAGES = Link(name="pages", bytes_per_second=1e8, pair_bytes_per_second=1e8, latency_seconds=1e-5)


def hidden(found: Estimate) -> float:
    return found.communication_seconds - found.time.exposed_communication


def computing(found: Estimate) -> float:
    time = found.time
    return time.matmul + time.attention + time.memory_bound + time.recompute + time.launch


def test_matmul_time_follows_the_efficiency_curve() -> None:
    """All matmuls are large: 0.7 of the peak; three passes of 2 FLOPs per weight and token."""
    time = estimate(Layout(), micro_batch=4).time
    weights = DENSE.parameters - DENSE.embedding_parameters
    flops = 6 * weights * WORKLOAD.tokens_per_step
    assert time.matmul == pytest.approx(flops / (0.7 * 4e14), rel=1e-3)
    assert time.exposed_communication == 0
    assert time.bubble == 0


def test_model_flops_follow_palm() -> None:
    """arXiv 2204.02311, appendix B: 6 N + 12 L H Q T, without the embedding."""
    weights = DENSE.parameters - DENSE.embedding_parameters
    assert model_flops_per_token(DENSE, WORKLOAD) == 6 * weights + 12 * 16 * 16 * 64 * TOKENS
    found = estimate(Layout(), micro_batch=4)
    rate = model_flops_per_token(DENSE, WORKLOAD) * found.tokens_per_second
    assert found.mfu == pytest.approx(rate / 4e14)


def test_matmuls_in_float8_take_the_measured_gain_and_else_that_of_the_peaks() -> None:
    """All matmuls of layers are large enough for the curve's end; the head stays in bf16."""
    peaks = {**DEVICE.peak_flops, "fp8": 8e14}
    head = 6 * DENSE.head_parameters * WORKLOAD.tokens_per_step / (0.7 * 4e14)

    def layers(float8: str, gain: float | None = None) -> float:
        on = cluster(gpus_per_node=1, peak_flops=peaks, float8_gain=gain)
        return estimate(Layout(), on=on, micro_batch=4, float8=float8).time.matmul - head

    assert layers("none") / layers("tensorwise") == pytest.approx(2.0, rel=1e-3)
    assert layers("none") / layers("tensorwise", 1.6) == pytest.approx(1.6, rel=1e-3)


def test_looped_stages_run_their_collectives_beside_a_round_of_the_other_stages() -> None:
    """Two ranks: the layers of one micro-batch hide their own time of slow gathers and reductions. With two stages each, one stage
    hides half of that, and two micro-batches on the other stage as much as one on both; with four stages 1 / 4 and 2 * 3 / 4.
    """

    def exposed(**knobs: Any) -> tuple[float, float]:
        found = estimate(Layout(pp=2, dp_shard=4), on=cluster(intra=PAGES), no_sync=True, reshard_after_forward=False, **knobs)
        return found.time.dp_communication, computing(found) / 8

    plain, micro_batch = exposed()
    (two, _), (four, _) = (exposed(pp_schedule="interleaved_1f1b", pp_virtual_stages=stages) for stages in (2, 4))
    assert 0.5 * micro_batch / 2 < plain - two < micro_batch / 2
    assert (plain - four) / (plain - two) == pytest.approx(0.75 / 0.5)


def test_tp_needs_four_all_reduces_per_layer() -> None:
    """Each of one micro-batch's activation, ring factor 2 (n - 1) / n, in 16 layers and 32 micro-batches; and two around the
    head.
    """
    layout = Layout(tp=8)
    time = estimate(layout, on=cluster(intra=replace(INTRA, latency_seconds=1e-12))).time
    reduce = 2 * 7 / 8 * TOKENS * DENSE.hidden_size * 2 / INTRA.bytes_per_second
    head = reduce + 7 / 8 * TOKENS * DENSE.vocab_size * 2 / INTRA.bytes_per_second
    assert time.tp_communication == pytest.approx(32 * (16 * 4 * reduce + head), rel=1e-6)


def test_interleaving_halves_the_pipeline_bubble() -> None:
    found = estimate(Layout(pp=4, dp_shard=2), no_sync=True)
    busy = computing(found) + found.time.tp_communication
    with_the_head_everywhere = 3 / 16 * busy  # the busiest rank has the head, the three that it waits for have none
    assert 0.5 * with_the_head_everywhere < found.time.bubble < with_the_head_everywhere
    halved = estimate(
        Layout(pp=4, dp_shard=2), no_sync=True, pp_schedule="interleaved_1f1b", pp_virtual_stages=2
    )  # fmt: skip
    assert halved.time.bubble == pytest.approx(found.time.bubble / 2)


def test_fsdp_communication_is_hidden_on_fast_links_and_exposed_on_slow_ones() -> None:
    """Resharding gathers twice and reduces once per micro-batch: gathers in the compute dtype, reductions in fp32."""
    free = replace(INTRA, latency_seconds=1e-12)
    fast = estimate(Layout(dp_shard=8), micro_batch=4, on=cluster(intra=replace(free, bytes_per_second=1e13)))
    assert fast.time.dp_communication < 0.05 * computing(fast)
    slow = estimate(Layout(dp_shard=8), micro_batch=4, on=cluster(intra=replace(free, bytes_per_second=1e8)))
    ends = DENSE.embedding_parameters + DENSE.head_parameters
    layers = DENSE.parameters - ends
    link = 7 / 8 * ((2 + 2 + 4) * layers + (2 + 4) * ends) / 1e8
    assert slow.communication_seconds == pytest.approx(link, rel=1e-3)
    assert slow.time.dp_communication == pytest.approx(link - computing(slow), rel=0.02)


def test_no_sync_reduces_gradients_once_per_step() -> None:
    slow = cluster(intra=PAGES)
    every, once = (estimate(Layout(dp_shard=8), no_sync=late, on=slow) for late in (False, True))
    reduction = 7 / 8 * 4 * DENSE.parameters / 1e8
    assert every.communication_seconds - once.communication_seconds == pytest.approx(3 * reduction, rel=1e-3)


def test_with_ep_over_all_ranks_experts_are_not_gathered() -> None:
    """With ep 8 on 8 ranks each rank has whole experts, and only the shared weights are sharded."""
    slow = cluster(intra=PAGES)
    shared, own = (estimate(Layout(dp_shard=8, ep=ep), EXPERTS, on=slow) for ep in (1, 8))
    experts = 7 / 8 * 4 * (2 + 2 + 4) * 16 * 8 * EXPERTS.expert_parameters / 1e8
    travelling = own.time.ep_communication
    assert shared.communication_seconds - own.communication_seconds + travelling == pytest.approx(experts, rel=1e-3)


def overlapped(on: Cluster, layout: Layout, **knobs: Any) -> tuple[Estimate, Estimate]:
    """Prices with ``ep_overlap`` and without."""
    with_overlap, without = (estimate(layout, EXPERTS, on=on, ep_overlap=overlap, **knobs) for overlap in (True, False))
    return with_overlap, without


def test_paired_passes_hide_exchanges_but_for_the_multiprocessors_that_these_take() -> None:
    """One of four micro-batches' passes runs alone. Exchanges take 0.16 of their time from the computation beside them."""
    on, off = overlapped(cluster(), Layout(dp_shard=8, ep=8))
    assert on.time.ep_communication == pytest.approx(off.time.ep_communication * (1 / 4 + 3 / 4 * 0.16))
    assert on.communication_seconds == pytest.approx(off.communication_seconds)
    on, off = overlapped(
        cluster(), Layout(pp=2, dp_shard=4, ep=4), pp_schedule="interleaved_1f1b", pp_virtual_stages=2, no_sync=True
    )
    alone = (2 * 1 + 1 * 2 + 1) / (2 * 8)
    assert on.time.ep_communication == pytest.approx(off.time.ep_communication * (alone + (1 - alone) * 0.16))


def test_paired_passes_hide_at_most_the_computation_of_layers() -> None:
    """On slow links three of four micro-batches' layers compute beside exchanges, the head beside none."""
    on, off = overlapped(cluster(intra=PAGES), Layout(dp_shard=8, ep=8))
    head = 6 * TOKENS * EXPERTS.hidden_size * EXPERTS.vocab_size * 4 / (0.7 * 4e14)
    layers = off.time.matmul + off.time.attention + off.time.memory_bound - head
    hidden_exchanges = off.time.ep_communication - on.time.ep_communication
    assert 0.5 * 3 / 4 * layers < hidden_exchanges <= 3 / 4 * layers


@pytest.mark.parametrize(("compiled", "moved"), [(True, 4.515875), (False, 24.515875)])
def test_a_rank_dequantizes_only_its_own_4_bit_experts(compiled: bool, moved: float) -> None:
    """Per step 4 micro-batches, forward and backward; a weight is read at 0.515875 bytes, written and read at 2. Eager kernels pass
    32-bit intermediate values.
    """

    def unpacking(**layout: int) -> float:
        four, plain = (
            estimate(Layout(dp_shard=8, **layout), EXPERTS, replace(WORKLOAD, train=train), compile=compiled).time.memory_bound
            for train in ("qlora", "lora")
        )
        return four - plain

    away = 16 * 7 * EXPERTS.expert_parameters
    assert unpacking() - unpacking(ep=8) == pytest.approx(4 * 2 * away * moved / (0.8 * 2e12), rel=1e-6)


def test_compute_hides_either_reduce_scatter_or_all_reduce_of_replicas() -> None:
    layout = Layout(dp_replicate=4, dp_shard=2)
    for late in (False, True):
        found = estimate(layout, micro_batch=4, no_sync=late, on=cluster(intra=replace(INTRA, bytes_per_second=4e9)))
        assert 0 < hidden(found) <= computing(found)


def test_launch_time_hides_collectives() -> None:
    on = cluster(launch_seconds=1e-3)
    found = estimate(Layout(dp_shard=8), on=on)
    assert found.time.launch > 0.9 * found.step_seconds
    assert found.time.dp_communication < 0.25 * found.communication_seconds  # those of embedding and head are not hidden


@pytest.mark.parametrize("late", [False, True])
def test_without_overlap_all_communication_is_exposed(late: bool) -> None:
    on = cluster(overlaps=False)
    for layout in (Layout(dp_shard=8), Layout(dp_replicate=2, dp_shard=4), Layout(dp_shard=2, tp=4)):
        found = estimate(layout, no_sync=late, on=on)
        assert hidden(found) == pytest.approx(0, abs=1e-9 * found.step_seconds)


def test_exposed_pipeline_transfers_do_not_exceed_total_communication() -> None:
    found = estimate(Layout(pp=8), micro_batch=32, pp_schedule="gpipe")
    assert found.time.pp_communication <= found.communication_seconds


def test_the_hosts_optimizer_update_takes_time() -> None:
    """16 bytes per parameter of the node at the host's rate, and 4 moved by clipping; the device computes the norm only."""
    none, away = (estimate(Layout(dp_shard=8), offload=name) for name in ("none", "optimizer"))
    assert away.time.optimizer == pytest.approx(4 / (28 + 4 + 4) * none.time.optimizer)
    counted = 16 + 4 * COUNTED_SHARE
    assert away.time.offload == pytest.approx((counted / 1e11 + 2 * 4 / 8 / 2e10) * DENSE.parameters, rel=1e-3)


def test_accumulating_gradients_on_the_host_takes_equal_time_for_adamw_and_sgd() -> None:
    adamw, sgd = (
        estimate(Layout(dp_shard=8), workload=replace(WORKLOAD, optimizer=name), offload="all").time.offload
        for name in ("adamw", "sgd")
    )
    moments = 8 - 4 * COUNTED_SHARE  # updated once; AdamW's kernel scales gradients as it reads them
    assert adamw - sgd == pytest.approx(moments * DENSE.parameters / 1e11, rel=1e-3)


def test_full_recomputation_repeats_the_forward_pass() -> None:
    none, full = (estimate(Layout(), micro_batch=4, recompute=name).time for name in ("none", "full"))
    head = 6 * DENSE.head_parameters * WORKLOAD.tokens_per_step / (0.7 * 4e14)
    forward = (none.matmul - head) / 3 + none.attention / 3.5
    assert none.recompute == 0
    assert forward < full.recompute < 1.1 * forward + none.memory_bound


def test_calibration_factors_scale_only_their_parts() -> None:
    layout = Layout(tp=2, dp_shard=4)
    base, tuned = (estimate(layout, calibration=factors).time for factors in (Calibration(), Calibration(compute=2.0)))
    assert (tuned.matmul, tuned.attention) == pytest.approx((2 * base.matmul, 2 * base.attention))
    assert tuned.tp_communication == base.tp_communication
    slower = estimate(layout, calibration=Calibration(communication=3.0)).time
    assert slower.tp_communication == pytest.approx(3 * base.tp_communication)
    assert slower.matmul == base.matmul
    late = estimate(layout, calibration=Calibration(overhead_seconds=0.5)).time
    assert late.total == pytest.approx(base.total + 0.5)
    stages = Layout(pp=2, dp_shard=8)
    quick, slow = (estimate(stages, calibration=Calibration(update_seconds=each), no_sync=True).time for each in (0.0, 0.01))
    assert slow.optimizer == pytest.approx(quick.optimizer + DENSE.layers / 2 * 0.01)


LAYOUTS: tuple[tuple[Layout, dict[str, Any]], ...] = (
    (Layout(dp_shard=16), {}),
    (Layout(dp_replicate=2, dp_shard=8), {"no_sync": True}),
    (Layout(dp_shard=8, tp=2), {"sequence_parallel": True}),
    (Layout(pp=2, dp_shard=8), {"no_sync": True}),
    (Layout(dp_shard=8, cp=2), {"recompute": "full"}),
    (Layout(dp_shard=8, tp=2), {"offload": "all"}),
)


@settings(max_examples=50)
@given(
    case=st.sampled_from(LAYOUTS), speed=st.floats(0.05, 20), times=st.floats(1, 10), link_name=st.sampled_from(["intra", "inter"])
)
def test_a_faster_link_never_makes_a_step_longer(case: Any, speed: float, times: float, link_name: str) -> None:
    layout, knobs = case
    links = {"intra": INTRA, "inter": INTER}

    def seconds(factor: float) -> float:
        link = links[link_name]
        faster = replace(
            link, bytes_per_second=link.bytes_per_second * factor, pair_bytes_per_second=link.pair_bytes_per_second * factor
        )  # fmt: skip
        return estimate(layout, on=cluster(nodes=2, **{**links, link_name: faster}), **knobs).step_seconds

    assert seconds(speed * times) <= seconds(speed) * (1 + 1e-9)


@settings(max_examples=30)
@given(case=st.sampled_from(LAYOUTS), times=st.floats(1, 10), name=st.sampled_from(["peak_flops", "memory_bytes_per_second"]))
def test_a_faster_device_never_makes_a_step_longer(case: Any, times: float, name: str) -> None:
    layout, knobs = case
    figure = getattr(DEVICE, name)
    faster = {key: times * flops for key, flops in figure.items()} if isinstance(figure, dict) else times * figure
    before, after = (
        estimate(layout, on=cluster(nodes=2, launch_seconds=1e-12, **device), **knobs) for device in ({}, {name: faster})
    )  # fmt: skip
    assert after.step_seconds <= before.step_seconds * (1 + 1e-9)
