"""The lower bound against values computed by hand from round figures."""

from dataclasses import replace

import pytest

from strategist.bound.lower_bound import lower_bound
from strategist.contract.bound import Bound
from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape, MoEShape
from strategist.contract.options import Options
from strategist.contract.workload import Workload
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model

MODEL = ModelShape(name="round", layers=8, hidden_size=1024, heads=16, kv_heads=16, head_size=64, ffn_size=4096, vocab_size=32768)
WORKLOAD = Workload(seq_len=2048, global_batch=32)
DEVICE = Device(
    name="card", kind="cuda", memory_bytes=80 * 2**30, usable_memory_bytes=78 * 2**30,
    peak_flops={"fp32": 1e12, "bf16": 1e14, "fp8": 2e14}, memory_bytes_per_second=1e12,
    matmul=Curve(points=((1e8, 0.5),), origin="assumed: a test"),
    attention_efficiency=0.5, memory_efficiency=0.8, launch_seconds=5e-6,
)  # fmt: skip
INTRA = Link(
    name="inside", bytes_per_second=8e10, pair_bytes_per_second=8e10, latency_seconds=1e-5, line_bytes_per_second=1e11
)  # fmt: skip
INTER = Link(
    name="across", bytes_per_second=8e9, pair_bytes_per_second=8e9, latency_seconds=1e-5, line_bytes_per_second=1e10
)  # fmt: skip
LAYER_WEIGHTS = 4 * 1024**2 + 3 * 1024 * 4096
LAYER_PARAMETERS = LAYER_WEIGHTS + 2 * 1024
HEAD_WEIGHTS = 32768 * 1024
TOKENS = 32 * 2048
ATTENTION = 8 * 2 * 2 * 1024 * 2048 / 2  # forward FLOPs a token: two products of 2 x 1,024 x half of the sequence, 8 layers


def bound(layout: Layout, nodes: int = 1, model: ModelShape = MODEL, options: Options | None = None, **knobs: object) -> Bound:
    """The bound of a legal candidate on nodes of eight devices or fewer."""
    candidate = Candidate(layout=layout, knobs=Knobs(**knobs), options=options or Options())  # type: ignore[arg-type]
    assert candidate.violations(model, WORKLOAD, layout.world_size) == ()
    return lower_bound(model, cluster(nodes, layout.world_size // nodes), WORKLOAD, candidate)


def cluster(nodes: int, gpus_per_node: int) -> Cluster:
    return Cluster(
        name="round", nodes=nodes, gpus_per_node=gpus_per_node, device=DEVICE, intra=INTRA, inter=INTER,
        host_bytes_per_second=1e10, host_optimizer_bytes_per_second=1e11, host_line_bytes_per_second=2e10,
    )  # fmt: skip


def test_compulsory_flops_are_six_per_weight_and_token_and_causal_attention() -> None:
    found = bound(Layout(dp_shard=8)).at_line_rate.compute
    matmul = 6 * TOKENS * (8 * LAYER_WEIGHTS + HEAD_WEIGHTS)
    assert found == pytest.approx((matmul + 3.5 * TOKENS * ATTENTION) / 8e14)


def test_full_recomputation_repeats_a_layers_forward_pass_except_its_last_matmul() -> None:
    more = bound(Layout(dp_shard=8), recompute="full").at_line_rate.compute - bound(Layout(dp_shard=8)).at_line_rate.compute
    assert more == pytest.approx(TOKENS * 2 * 8 * (LAYER_WEIGHTS - 1024 * 4096) / 8e14)


def test_float8_halves_matmuls_but_not_attention() -> None:
    plain, eighth = (bound(Layout(dp_shard=8), compile=True, float8=kind).at_line_rate.compute for kind in ("none", "tensorwise"))
    assert plain - eighth == pytest.approx(3 * TOKENS * (8 * LAYER_WEIGHTS + HEAD_WEIGHTS) / 8e14)


def test_clock_headroom_raises_the_peak() -> None:
    quick = replace(cluster(1, 8), device=replace(DEVICE, clock_headroom=1.25))
    candidate = Candidate(layout=Layout(dp_shard=8), knobs=Knobs())
    slow, fast = (lower_bound(MODEL, each, WORKLOAD, candidate).at_line_rate.compute for each in (cluster(1, 8), quick))
    assert slow / fast == pytest.approx(1.25)


def test_fsdp_gathers_twice_and_reduces_once_per_micro_batch() -> None:
    found = bound(Layout(dp_shard=8), micro_batch=2).at_line_rate.intra_node
    layers, ends = 8 * LAYER_PARAMETERS, 2 * HEAD_WEIGHTS  # the root is gathered once
    assert found == pytest.approx(2 * 7 / 8 * (layers * (2 + 2 + 4) + ends * (2 + 4)) / 1e11, rel=1e-4)


def test_a_ring_enters_each_node_once() -> None:
    """16 ranks on two nodes: each node receives 15 of 16 shares, over eight ports."""
    found = bound(Layout(dp_shard=16), nodes=2).at_line_rate
    layers, ends = 8 * LAYER_PARAMETERS, 2 * HEAD_WEIGHTS
    assert found.inter_node == pytest.approx(2 * 15 / 16 * (layers * 8 + ends * 6) / 8 / 1e10, rel=1e-4)


def test_a_pipeline_with_subgroup_resharding_gathers_across_nodes_once_per_step() -> None:
    """torch does not reshard after a backward pass of a pipeline: the shards of a subgroup serve all other micro-batches."""
    layout = Layout(pp=2, dp_shard=16)
    kept, grouped = (
        bound(layout, nodes=4, no_sync=True, **knobs).at_line_rate.inter_node
        for knobs in ({"reshard_after_forward": False}, {"reshard_after_forward": "subgroup", "reshard_group_size": 8})
    )
    assert grouped == pytest.approx(kept)


def test_groups_that_share_ports_share_bandwidth() -> None:
    """With replicas across nodes, eight rings of two ranks cross the network, each with the gradients of one shard."""
    found = bound(Layout(dp_replicate=2, dp_shard=8), nodes=2, no_sync=True).at_line_rate.inter_node
    shard = (8 * LAYER_PARAMETERS + 2 * HEAD_WEIGHTS) / 8
    assert found == pytest.approx(2 * 1 / 2 * shard * 4 / 1e10, rel=1e-4)


def test_tp_has_four_all_reduces_per_layer_and_two_for_embedding_and_head() -> None:
    found = bound(Layout(tp=4), micro_batch=1).at_line_rate.intra_node
    assert found == pytest.approx(32 * (8 * 4 + 2) * 2 * 3 / 4 * 2048 * 1024 * 2 / 1e11)


def test_in_switch_reduction_sends_each_sum_once() -> None:
    candidate, boxes = Candidate(layout=Layout(tp=4), knobs=Knobs()), [cluster(1, 4)]
    boxes.append(replace(boxes[0], intra=replace(INTRA, in_switch=True)))
    ring, switched = (lower_bound(MODEL, box, WORKLOAD, candidate).at_line_rate.intra_node for box in boxes)
    assert switched / ring == pytest.approx((5 / 4) / (2 * 3 / 4))


def test_ep_sends_a_token_once_to_each_other_node_with_its_experts() -> None:
    """Two of eight experts, four on each of two nodes: both experts of a token are on its own node with probability 4/8 x 3/7."""
    experts = replace(MODEL, moe=MoEShape(experts=8, experts_per_token=2, expert_ffn_size=2048))
    found = bound(Layout(dp_shard=8, ep=8), nodes=2, model=experts, reshard_after_forward=False, no_sync=True)
    alone = bound(Layout(dp_shard=8), nodes=2, model=experts, reshard_after_forward=False, no_sync=True)
    parameters = 8 * 8 * 3 * 1024 * 2048
    exchanged = 4 * 8 * 4 * 2048 * 1024 * 2 * 2 * (1 - 4 / 8 * 3 / 7) / 2
    spared = 7 / 8 * parameters * (2 + 4) / 4  # experts of their own are neither gathered nor reduced
    assert found.at_line_rate.inter_node - alone.at_line_rate.inter_node == pytest.approx((exchanged - spared) / 1e10, rel=1e-4)


def test_the_last_pipeline_rank_waits_for_the_first_forward_passes() -> None:
    one = 2 * 2048 * LAYER_WEIGHTS + 2048 * ATTENTION / 8  # one micro-batch forward through one layer
    layer = 32 * (6 * 2048 * LAYER_WEIGHTS + 3.5 * 2048 * ATTENTION / 8)
    head = 6 * TOKENS * HEAD_WEIGHTS
    found = bound(Layout(pp=4), micro_batch=1).at_line_rate.compute
    assert found == pytest.approx((2 * layer + head + 3 * 2 * one) / 1e14)


def test_with_weighted_split_the_bound_is_the_mean_of_the_stages() -> None:
    even, uneven = (
        bound(Layout(pp=4), micro_batch=1, options=Options(pp_split=split)).at_line_rate.compute for split in ("even", "weighted")
    )
    assert uneven == pytest.approx(bound(Layout(dp_shard=4), micro_batch=1).at_line_rate.compute)
    assert uneven < even


def test_offloaded_parameters_cross_the_host_link_at_each_gather() -> None:
    found = bound(Layout(dp_shard=8), micro_batch=1, offload="all").at_line_rate.host_link
    assert found == pytest.approx(4 * 2 * 2 * (8 * LAYER_PARAMETERS + 2 * HEAD_WEIGHTS) / 8 / 2e10, rel=1e-4)


def test_the_practical_bound_uses_measured_link_rates() -> None:
    found = bound(Layout(dp_shard=16), nodes=2)
    line, measured = found.at_line_rate, found.at_measured_rate
    assert (measured.inter_node / line.inter_node, measured.compute) == (pytest.approx(10 / 8), line.compute)
    assert (found.limited_by, found.seconds) == ("compute", line.compute)


@pytest.mark.parametrize(
    ("gpus", "batch", "layout", "seconds"),
    [
        ("2048x8xH100", 2048, Layout(dp_replicate=32, dp_shard=64, cp=4, tp=2), 8.11),
        ("256x8xH100", 1024, Layout(dp_replicate=4, dp_shard=64, cp=4, tp=2), 32.3),
        ("64x8xH100", 512, Layout(dp_shard=64, cp=4, tp=2), 63.9),
        ("128x8xB200", 1024, Layout(dp_shard=512, tp=2), 16.1),
    ],
)
def test_bounds_of_405b_equal_those_of_an_independent_program(gpus: str, batch: int, layout: Layout, seconds: float) -> None:
    """By a separate program written from the definition, within 3 %."""
    workload = Workload(seq_len=8192, global_batch=batch)
    candidate = Candidate(layout=layout, knobs=Knobs(sequence_parallel=True))
    found = lower_bound(resolve_model("llama3-405b").shape, resolve_cluster(gpus), workload, candidate)
    assert found.limited_by == "inter_node"
    assert found.seconds == pytest.approx(seconds, rel=0.03)
