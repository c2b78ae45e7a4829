"""Seconds of a step: what hides behind what, and against figures worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cost.situations import DENSE, DEVICE, EXPERTS, INTER, INTRA, WORKLOAD, cluster, estimate
from strategist.contract.cluster import Link
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


def test_one_device_multiplies_matrices_at_the_rate_of_its_curve() -> None:
    """All matmuls are large, so 0.7 of the peak; three passes of 2 FLOPs a weight and token."""
    time = estimate(Layout(), micro_batch=4).time
    weights = DENSE.parameters - DENSE.embedding_parameters
    flops = 6 * weights * WORKLOAD.tokens_per_step
    assert time.matmul == pytest.approx(flops / (0.7 * 4e14), rel=1e-3)
    assert time.exposed_communication == 0
    assert time.bubble == 0


def test_model_flops_are_those_of_palm() -> None:
    """arXiv 2204.02311, appendix B: 6 N + 12 L H Q T, the embedding not counted."""
    weights = DENSE.parameters - DENSE.embedding_parameters
    assert model_flops_per_token(DENSE, WORKLOAD) == 6 * weights + 12 * 16 * 16 * 64 * TOKENS
    found = estimate(Layout(), micro_batch=4)
    rate = model_flops_per_token(DENSE, WORKLOAD) * found.tokens_per_second
    assert found.mfu == pytest.approx(rate / 4e14)


def test_tensor_parallelism_pays_four_all_reduces_a_layer() -> None:
    """Of one micro-batch's activation, ring factor 2 (n - 1) / n, in 16 layers and 32 micro-batches; and two around the head."""
    layout = Layout(tp=8)
    time = estimate(layout, on=cluster(intra=replace(INTRA, latency_seconds=1e-12))).time
    reduce = 2 * 7 / 8 * TOKENS * DENSE.hidden_size * 2 / INTRA.bytes_per_second
    head = reduce + 7 / 8 * TOKENS * DENSE.vocab_size * 2 / INTRA.bytes_per_second
    assert time.tp_communication == pytest.approx(32 * (16 * 4 * reduce + head), rel=1e-6)


def test_a_pipeline_idles_while_it_fills() -> None:
    found = estimate(Layout(pp=4, dp_shard=2), no_sync=True)
    busy = computing(found) + found.time.tp_communication
    with_the_head_everywhere = 3 / 16 * busy  # the busiest rank has the head, the three that it waits for have none
    assert 0.5 * with_the_head_everywhere < found.time.bubble < with_the_head_everywhere
    halved = estimate(
        Layout(pp=4, dp_shard=2), no_sync=True, pp_schedule="interleaved_1f1b", pp_virtual_stages=2
    )  # fmt: skip
    assert halved.time.bubble == pytest.approx(found.time.bubble / 2)


def test_a_slow_link_exposes_what_a_fast_one_hides() -> None:
    """Resharding gathers twice and reduces once a micro-batch: compute type both ways, fp32 back."""
    free = replace(INTRA, latency_seconds=1e-12)
    fast = estimate(Layout(dp_shard=8), micro_batch=4, on=cluster(intra=replace(free, bytes_per_second=1e13)))
    assert fast.time.dp_communication < 0.05 * computing(fast)
    slow = estimate(Layout(dp_shard=8), micro_batch=4, on=cluster(intra=replace(free, bytes_per_second=1e8)))
    ends = DENSE.embedding_parameters + DENSE.head_parameters
    layers = DENSE.parameters - ends
    link = 7 / 8 * ((2 + 2 + 4) * layers + (2 + 4) * ends) / 1e8
    assert slow.communication_seconds == pytest.approx(link, rel=1e-3)
    assert slow.time.dp_communication == pytest.approx(link - computing(slow), rel=0.02)


def test_postponed_reductions_happen_once_a_step() -> None:
    slow = cluster(intra=PAGES)
    every, once = (estimate(Layout(dp_shard=8), no_sync=late, on=slow) for late in (False, True))
    reduction = 7 / 8 * 4 * DENSE.parameters / 1e8
    assert every.communication_seconds - once.communication_seconds == pytest.approx(3 * reduction, rel=1e-3)


def test_experts_that_span_all_ranks_are_not_gathered() -> None:
    """With ep 8 on 8 ranks each holds its experts whole, and only what all tokens use is sharded."""
    slow = cluster(intra=PAGES)
    shared, own = (estimate(Layout(dp_shard=8, ep=ep), EXPERTS, on=slow) for ep in (1, 8))
    experts = 7 / 8 * 4 * (2 + 2 + 4) * 16 * 8 * EXPERTS.expert_parameters / 1e8
    travelling = own.time.ep_communication
    assert shared.communication_seconds - own.communication_seconds + travelling == pytest.approx(experts, rel=1e-3)


@pytest.mark.parametrize(("compiled", "moved"), [(True, 4.515875), (False, 24.515875)])
def test_a_rank_unpacks_only_the_4_bit_experts_that_it_computes_with(compiled: bool, moved: float) -> None:
    """Per step 4 micro-batches, forward and backward; a weight is read at 0.515875 bytes, written and read at 2. Kernels of an
    operation each pass over 32-bit values between."""

    def unpacking(**layout: int) -> float:
        four, plain = (
            estimate(Layout(dp_shard=8, **layout), EXPERTS, replace(WORKLOAD, train=train), compile=compiled).time.memory_bound
            for train in ("qlora", "lora")
        )
        return four - plain

    away = 16 * 7 * EXPERTS.expert_parameters
    assert unpacking() - unpacking(ep=8) == pytest.approx(4 * 2 * away * moved / (0.8 * 2e12), rel=1e-6)


def test_what_reductions_hide_behind_no_replica_hides_behind_again() -> None:
    layout = Layout(dp_replicate=4, dp_shard=2)
    for late in (False, True):
        found = estimate(layout, micro_batch=4, no_sync=late, on=cluster(intra=replace(INTRA, bytes_per_second=4e9)))
        assert 0 < hidden(found) <= computing(found)


def test_collectives_run_on_while_the_host_launches() -> None:
    on = cluster(launch_seconds=1e-3)
    found = estimate(Layout(dp_shard=8), on=on)
    assert found.time.launch > 0.9 * found.step_seconds
    assert found.time.dp_communication < 0.25 * found.communication_seconds  # the ends run beside nothing


@pytest.mark.parametrize("late", [False, True])
def test_where_nothing_overlaps_all_communication_is_exposed(late: bool) -> None:
    on = cluster(overlaps=False)
    for layout in (Layout(dp_shard=8), Layout(dp_replicate=2, dp_shard=4), Layout(dp_shard=2, tp=4)):
        found = estimate(layout, no_sync=late, on=on)
        assert hidden(found) == pytest.approx(0, abs=1e-9 * found.step_seconds)


def test_transfers_between_stages_are_no_shorter_than_what_of_them_is_exposed() -> None:
    found = estimate(Layout(pp=8), micro_batch=32, pp_schedule="gpipe")
    assert found.time.pp_communication <= found.communication_seconds


def test_work_on_the_hosts_is_paid_for() -> None:
    """16 bytes a parameter of the node at the hosts' rate, and 4 that clipping moves; on the device the norm alone."""
    none, away = (estimate(Layout(dp_shard=8), offload=name) for name in ("none", "optimizer"))
    assert away.time.optimizer == pytest.approx(4 / (28 + 4 + 4) * none.time.optimizer)
    counted = 16 + 4 * COUNTED_SHARE
    assert away.time.offload == pytest.approx((counted / 1e11 + 2 * 4 / 8 / 2e10) * DENSE.parameters, rel=1e-3)


def test_adding_gradients_on_the_hosts_takes_as_long_with_any_optimizer() -> None:
    adamw, sgd = (
        estimate(Layout(dp_shard=8), workload=replace(WORKLOAD, optimizer=name), offload="all").time.offload
        for name in ("adamw", "sgd")
    )
    moments = 8 - 4 * COUNTED_SHARE  # updated once; and AdamW's kernel reads its gradients but once to scale them
    assert adamw - sgd == pytest.approx(moments * DENSE.parameters / 1e11, rel=1e-3)


def test_recomputing_in_full_repeats_the_forward_pass() -> None:
    none, full = (estimate(Layout(), micro_batch=4, recompute=name).time for name in ("none", "full"))
    head = 6 * DENSE.head_parameters * WORKLOAD.tokens_per_step / (0.7 * 4e14)
    forward = (none.matmul - head) / 3 + none.attention / 3.5
    assert none.recompute == 0
    assert forward < full.recompute < 1.1 * forward + none.memory_bound


def test_calibration_stretches_its_parts_and_no_others() -> None:
    layout = Layout(tp=2, dp_shard=4)
    base, tuned = (estimate(layout, calibration=factors).time for factors in (Calibration(), Calibration(compute=2.0)))
    assert (tuned.matmul, tuned.attention) == pytest.approx((2 * base.matmul, 2 * base.attention))
    assert tuned.tp_communication == base.tp_communication
    slower = estimate(layout, calibration=Calibration(communication=3.0)).time
    assert slower.tp_communication == pytest.approx(3 * base.tp_communication)
    assert slower.matmul == base.matmul
    late = estimate(layout, calibration=Calibration(overhead_seconds=0.5)).time
    assert late.total == pytest.approx(base.total + 0.5)


LAYOUTS: tuple[tuple[Layout, dict[str, Any]], ...] = (
    (Layout(dp_shard=16), {}),
    (Layout(dp_replicate=2, dp_shard=8), {"no_sync": True}),
    (Layout(dp_shard=8, tp=2), {"sequence_parallel": True}),
    (Layout(pp=2, dp_shard=8), {"no_sync": True}),
    (Layout(dp_shard=8, cp=2), {"recompute": "full"}),
    (Layout(dp_shard=8, tp=2), {"offload": "all"}),
)


@settings(max_examples=50)
@given(case=st.sampled_from(LAYOUTS), speed=st.floats(0.05, 20), times=st.floats(1, 10), which=st.sampled_from(["intra", "inter"]))
def test_a_faster_link_never_makes_a_step_longer(case: Any, speed: float, times: float, which: str) -> None:
    layout, knobs = case
    links = {"intra": INTRA, "inter": INTER}

    def seconds(factor: float) -> float:
        link = links[which]
        faster = replace(
            link, bytes_per_second=link.bytes_per_second * factor, pair_bytes_per_second=link.pair_bytes_per_second * factor
        )  # fmt: skip
        return estimate(layout, on=cluster(nodes=2, **{**links, which: faster}), **knobs).step_seconds

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
