"""Offload: copies to the host, their overlap with compute, and updates on the host."""

from dataclasses import replace
from math import log
from typing import Any

import pytest

from cost import situations
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.pipeline_stages import RESIDENT_LAYERS
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.offload import COUNTED_SHARE
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model

MODEL = resolve_model("llama3.1-8b").shape
WORKLOAD = Workload(seq_len=2048, global_batch=320, precision="fp16")
BOX = resolve_cluster("8xRTX4090")


TWO = Layout(dp_shard=2)


def with_offloaded_activations(
    layout: Layout = TWO, rate: float = 2e10, workload: Workload = situations.WORKLOAD, **knobs: Any
) -> Estimate:
    """A candidate with activation offload over host links of the given rate."""
    on = replace(situations.cluster(gpus_per_node=layout.world_size), host_bytes_per_second=rate)
    return situations.estimate(layout, workload=workload, on=on, activation_offload=True, **knobs)


def priced(layout: Layout, stack: Stack = NATIVE, **knobs: Any) -> Estimate:
    candidate = Candidate(layout=layout, knobs=Knobs(recompute="full", **knobs))
    columns = table([row_of(candidate, candidate.accumulation(WORKLOAD))])
    return price(MODEL, BOX, WORKLOAD, columns, stack=stack).estimate(0)


STREAMED: dict[str, Any] = {"offload": "streamed", "pp_schedule": "gpipe", "micro_batch": 4}


def test_async_optimizer_step_hides_update_and_bubble() -> None:
    at_once = priced(Layout(pp=8), **STREAMED)
    later = priced(Layout(pp=8), async_optimizer_step=True, **STREAMED)
    assert later.time.bubble == later.time.offload == 0 < at_once.time.bubble
    other_bytes = 4 + 4 + 6  # the norm, scaled gradients written back, and weights cast to half of their size
    counted = 16 + other_bytes * COUNTED_SHARE
    assert at_once.time.offload == pytest.approx(counted * MODEL.parameters / BOX.host_optimizer_bytes_per_second, rel=1e-6)
    assert at_once.step_seconds - later.step_seconds == pytest.approx(at_once.time.bubble + at_once.time.offload)


def test_ranks_that_share_a_nodes_cores_update_more_slowly() -> None:
    contended = replace(NATIVE, contended_update=1.9)
    bound, shared = (priced(Layout(pp=8), stack, **STREAMED) for stack in (NATIVE, contended))
    assert shared.time.offload == pytest.approx(1.9 * bound.time.offload)
    candidate = Candidate(layout=Layout(), knobs=Knobs(recompute="full", offload="all"))
    columns = table([row_of(candidate, candidate.accumulation(WORKLOAD))])
    one = resolve_cluster("1xRTX4090")
    alone, unchanged = (price(MODEL, one, WORKLOAD, columns, stack=stack).step_seconds for stack in (contended, NATIVE))
    assert alone == unchanged  # a single rank has all cores


def test_streamed_stages_share_the_heads_compute_evenly() -> None:
    """A pipeline's last rank computes the whole head; with streamed stages each device computes an eighth."""
    streamed = priced(Layout(pp=8), **STREAMED)
    pipeline = priced(Layout(pp=8), micro_batch=4)
    assert streamed.time.matmul < pipeline.time.matmul


def test_without_peer_access_collectives_do_not_slow_offload_copies() -> None:
    sharded = priced(Layout(dp_shard=8))
    offloaded = priced(Layout(dp_shard=8), offload="all")
    assert offloaded.time.dp_communication == pytest.approx(sharded.time.dp_communication, rel=0.01)


def test_reductions_without_overlap_are_exposed() -> None:
    hidden = priced(Layout(dp_shard=8), micro_batch=8)
    exposed = priced(Layout(dp_shard=8), replace(NATIVE, hides_reductions=False), micro_batch=8)
    assert exposed.time.dp_communication > hidden.time.dp_communication


def test_collectives_by_copy_engines_use_each_devices_own_link() -> None:
    rings, copies = (
        priced(Layout(dp_shard=8), replace(NATIVE, collectives=kind)).time.dp_communication for kind in ("nccl", "copies")
    )
    assert rings / copies > 4


def test_fp16_accumulation_speeds_up_matmuls() -> None:
    usual, fast = (priced(Layout(pp=8), replace(NATIVE, fp16_sums=on)) for on in (False, True))
    assert fast.time.matmul < 0.75 * usual.time.matmul
    assert fast.time.attention == pytest.approx(usual.time.attention)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activation_offload_keeps_a_window_of_layers_on_the_device(recompute: str) -> None:
    here, there = (
        situations.estimate(TWO, recompute=recompute, micro_batch=4),
        with_offloaded_activations(recompute=recompute, micro_batch=4),
    )
    layers = situations.DENSE.layers
    hosted = there.host_memory_bytes_per_node * log(2) / 2  # of one device, before blocks are rounded up
    assert here.memory.activations - there.memory.activations == pytest.approx((layers - RESIDENT_LAYERS) / layers * hosted)
    assert here.host_memory_bytes_per_node == 0


def test_activation_offload_with_full_recomputation_moves_layer_inputs_only() -> None:
    tokens, layers = 4 * situations.WORKLOAD.seq_len, situations.DENSE.layers
    hosted = with_offloaded_activations(recompute="full", micro_batch=4).host_memory_bytes_per_node * log(2) / 2
    assert hosted == pytest.approx(2 * tokens * situations.DENSE.hidden_size * layers)


def test_a_pipeline_keeps_only_the_window_of_all_micro_batches_in_flight() -> None:
    knobs: dict[str, Any] = {"recompute": "full", "micro_batch": 1, "model": replace(situations.DENSE, vocab_size=256)}
    here, there = situations.estimate(Layout(pp=4), **knobs), with_offloaded_activations(Layout(pp=4), **knobs)
    one_layer = 4 * situations.WORKLOAD.seq_len * situations.DENSE.hidden_size  # autocast leaves fp32 between layers
    in_flight, layers = 4, situations.DENSE.layers // 4
    assert here.memory.activations - there.memory.activations == pytest.approx((in_flight * layers - RESIDENT_LAYERS) * one_layer)


def test_offload_time_is_the_part_of_copies_that_compute_does_not_hide() -> None:
    fast, slow, slower = (with_offloaded_activations(rate=rate, micro_batch=4) for rate in (1e13, 1e9, 5e8))
    assert fast.time.offload == 0
    copies = slow.host_memory_bytes_per_node * log(2) / 2 * 2 * situations.WORKLOAD.global_batch / (2 * 4) / 1e9  # both ways
    computed = slow.step_seconds - slow.time.offload - slow.time.optimizer
    assert copies - computed < slow.time.offload < copies
    assert slower.time.offload - slow.time.offload == pytest.approx(copies, rel=0.01)


def test_copies_of_states_and_activations_share_the_host_link() -> None:
    states = situations.estimate(TWO, on=situations.cluster(gpus_per_node=2), offload="all")
    both, alone = with_offloaded_activations(offload="all", rate=2e10), with_offloaded_activations(rate=2e10)
    assert both.time.offload > states.time.offload
    assert both.time.offload >= alone.time.offload


def test_a_streamed_update_in_the_backward_pass_is_hidden_except_for_the_last_stage() -> None:
    """Eight devices have four layers each; the update of the last layer is exposed."""
    after, in_backward = (priced(Layout(pp=8), optimizer_in_backward=in_backward, **STREAMED) for in_backward in (False, True))
    assert in_backward.time.offload == pytest.approx(after.time.offload / 4, rel=0.2)
    assert in_backward.time.bubble == after.time.bubble
    assert after.step_seconds - in_backward.step_seconds == pytest.approx(after.time.offload - in_backward.time.offload)


def host_updates(
    rate: float = 1e11, workload: Workload = situations.WORKLOAD, overlaps: bool = True, **knobs: Any
) -> list[Estimate]:
    """Estimates with the host's update after the backward pass, and during it."""
    on = replace(situations.cluster(gpus_per_node=2, overlaps=overlaps), host_optimizer_bytes_per_second=rate)
    both = ({**knobs, "optimizer_in_backward": in_backward} for in_backward in (False, True))
    return [situations.estimate(TWO, workload=workload, on=on, offload="optimizer", **each) for each in both]


def test_a_host_update_in_the_backward_pass_is_hidden_except_for_the_last_gradients() -> None:
    """Embedding and head are reduced last, and together."""
    after, in_backward = host_updates(rate=1e13, micro_batch=16)
    model = situations.DENSE
    last = 2 * model.vocab_size * model.hidden_size / model.parameters
    assert last > 1 / model.layers
    assert in_backward.time.offload == pytest.approx(last * after.time.offload, rel=0.01)
    assert after.step_seconds - in_backward.step_seconds == pytest.approx(after.time.offload - in_backward.time.offload)


SCALING = 4 * COUNTED_SHARE * situations.DENSE.parameters
"""Bytes that gradient clipping adds to an update after the backward pass."""


def test_a_host_update_is_hidden_by_the_last_micro_batch_only() -> None:
    fewer, more = (
        after.time.offload - in_backward.time.offload
        for after, in_backward in (host_updates(1e9, micro_batch=size) for size in (4, 8))
    )
    assert more - SCALING / 1e9 == pytest.approx(2 * (fewer - SCALING / 1e9), rel=0.05)


def test_without_overlap_a_host_update_is_not_hidden() -> None:
    after, in_backward = host_updates(overlaps=False)
    assert after.time.offload == pytest.approx(in_backward.time.offload + SCALING / 1e11)


def test_gradients_are_freed_during_the_backward_pass_only_without_accumulation() -> None:
    short = Workload(seq_len=16, global_batch=4)
    for size, freed in ((2, True), (1, False)):
        after, in_backward = host_updates(workload=short, micro_batch=size)
        assert (in_backward.memory.gradients < after.memory.gradients) == freed
