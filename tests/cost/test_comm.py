"""Collectives: bandwidth, latency and bytes of each axis on the links that it crosses."""

from dataclasses import replace

import numpy as np
import pytest

from cost.situations import DENSE, EXPERTS, INTER, INTRA, WORKLOAD, cluster, estimate
from strategist.contract.cluster import Cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import view
from strategist.cost.layer_flops import work_of
from strategist.cost.layer_overlap import CONTENTION
from strategist.cost.price import price
from strategist.cost.process_groups import group
from strategist.cost.step import rank_steps
from strategist.expr.columns import row_of, table

ROUND = replace(EXPERTS, layers=1)
ACTIVATION = WORKLOAD.seq_len * ROUND.hidden_size * 2


def exchange_seconds(
    on: Cluster, layout: Layout, stack: str = "choices", calibration: Calibration = NEUTRAL, recompute: str = "none"
) -> float:
    """Seconds of one token exchange; a step has four per micro-batch: dispatch and combine, forward and backward."""
    candidate = Candidate(layout=layout, knobs=Knobs(micro_batch=1, recompute=recompute))
    times = candidate.accumulation(WORKLOAD)
    found = price(
        ROUND, on, WORKLOAD, table([row_of(candidate, times)]), calibration, replace(NATIVE, dispatch=stack)
    )  # fmt: skip
    return float(found.time["ep_communication"][0]) / (4 * times)


def without_latency(nodes: int, gpus_per_node: int) -> Cluster:
    """A cluster whose links have no latency."""
    links = (replace(link, latency_seconds=1e-15) for link in (INTRA, INTER))
    return cluster(nodes, gpus_per_node, *links)


def test_tokens_are_sent_once_per_chosen_expert() -> None:
    seconds = exchange_seconds(without_latency(1, 8), Layout(dp_shard=8, ep=8))
    assert seconds == pytest.approx(2 * 7 / 8 * ACTIVATION / INTRA.bytes_per_second, rel=1e-6)


def test_rank_deduplicated_dispatch_sends_a_token_once_per_rank() -> None:
    """Two random experts are on the same one of 2 ranks with probability one half."""
    seconds = exchange_seconds(without_latency(1, 2), Layout(dp_shard=2, ep=2), "ranks")
    assert seconds == pytest.approx(1.5 * 1 / 2 * ACTIVATION / INTRA.bytes_per_second, rel=1e-6)


@pytest.mark.parametrize(("stack", "copies"), [("choices", 2.0), ("ranks", 1.5)])
def test_expert_traffic_between_nodes_uses_each_ranks_port(stack: str, copies: float) -> None:
    seconds = exchange_seconds(without_latency(2, 4), Layout(dp_shard=8, ep=8), stack)
    assert seconds == pytest.approx(copies * 1 / 2 * ACTIVATION / INTER.bytes_per_second, rel=1e-6)


def test_full_recomputation_repeats_the_token_exchange() -> None:
    """Two exchanges more, besides two of the forward pass and two of the backward pass."""
    plain, recomputed = (
        exchange_seconds(without_latency(1, 8), Layout(dp_shard=8, ep=8), recompute=how) for how in ("none", "full")
    )
    assert recomputed == pytest.approx(6 / 4 * plain)


def test_transformer_engine_gathers_float8_under_sequence_parallelism() -> None:
    """Half the bytes of gathers, none less of reduce-scatters: three quarters of both; torchao gathers bf16."""
    saved = replace(NATIVE, memory_traits=replace(NATIVE.memory_traits, quantized_inputs=True))

    def seconds(stack: Stack, float8: str, *, sequence_parallel: bool = True) -> float:
        knobs = Knobs(micro_batch=1, sequence_parallel=sequence_parallel, float8=float8)
        columns = table([row_of(Candidate(layout=Layout(tp=8), knobs=knobs), WORKLOAD.global_batch)])
        found = price(replace(DENSE, layers=128), without_latency(1, 8), WORKLOAD, columns, NEUTRAL, stack)
        return float(found.time["tp_communication"][0])

    assert seconds(saved, "tensorwise") == pytest.approx(3 / 4 * seconds(saved, "none"), rel=0.02)
    assert seconds(NATIVE, "tensorwise") == pytest.approx(seconds(NATIVE, "none"), rel=1e-3)
    assert seconds(saved, "tensorwise", sequence_parallel=False) == pytest.approx(
        seconds(saved, "none", sequence_parallel=False), rel=1e-3
    )


def test_tensor_and_expert_factors_scale_exposed_communication() -> None:
    split, spread = Layout(tp=8), Layout(dp_shard=8, ep=8)
    whole = estimate(split).time.tp_communication
    assert (
        estimate(split, calibration=Calibration(tensor=0.5)).time.tp_communication < 0.7 * whole
    )  # and compute is slowed by contention
    shown = (0.5 + CONTENTION / 2) * exchange_seconds(without_latency(1, 8), spread)
    assert exchange_seconds(without_latency(1, 8), spread, calibration=Calibration(expert=0.5)) == pytest.approx(shown)


def ring_seconds(bytes_per_second: float, keys: str) -> tuple[float, float]:
    """Exposed seconds of rings in a step of four sequences of 65,536 tokens on eight ranks, and seconds of attention. Gradients
    travel in bf16 and no return hop is needed.
    """
    stack = replace(NATIVE, ring_keys=keys, ring_gradients="computed")
    long = replace(WORKLOAD, seq_len=65536, global_batch=4)
    columns = table([row_of(Candidate(layout=Layout(cp=8), knobs=Knobs(micro_batch=1)), 4)])
    on = replace(without_latency(1, 8), intra=replace(INTRA, latency_seconds=0.0, bytes_per_second=bytes_per_second))
    found = price(DENSE, on, long, columns, NEUTRAL, stack)
    return float(found.time["cp_communication"][0]), float(found.time["attention"][0])


RING_BYTES = 4 * DENSE.layers * 7 / 8 * 65536 * DENSE.key_value_width * 2
"""Bytes of keys and values that a rank receives in one pass of a step."""


def test_attention_hides_its_ring_but_for_the_multiprocessors_that_it_takes() -> None:
    """Keys and values travel forward, and backward with their gradients."""
    exposed, _ = ring_seconds(2e11, "passed")
    assert exposed == pytest.approx(CONTENTION * 3 * RING_BYTES / 2e11)


def test_attention_hides_a_ring_for_all_blocks_but_one() -> None:
    exposed, attention = ring_seconds(2e9, "passed")
    assert exposed == pytest.approx(3 * RING_BYTES / 2e9 - (1 - CONTENTION) * 7 / 8 * attention)


def test_gathered_keys_arrive_beside_the_first_block_of_attention() -> None:
    """The forward pass is 2 of 7 parts of attention: an eighth hides the gather. The ring of gradients lacks one block, too."""
    exposed, attention = ring_seconds(2e9, "gathered")
    hidden = 2 / 7 * 1 / 8 + 5 / 7 * 7 / 8
    assert exposed == pytest.approx(3 * RING_BYTES / 2e9 - (1 - CONTENTION) * hidden * attention)


def replica_seconds(stack: Stack, layout: Layout, model: ModelShape = DENSE, *, micro_batch: int = 1) -> float:
    """Exposed data-parallel seconds of a step on 32 nodes of 8."""
    candidate = Candidate(layout=layout, knobs=Knobs(micro_batch=micro_batch, no_sync=True))
    workload = replace(WORKLOAD, global_batch=256 * micro_batch)
    columns = table([row_of(candidate, candidate.accumulation(workload))])
    return float(price(model, cluster(32), workload, columns, NEUTRAL, stack).time["dp_communication"][0])


def test_replicas_pay_latency_for_each_bucket() -> None:
    ddp, whole = NATIVE, replace(NATIVE, bucket_bytes=0.0)
    replicas = Layout(dp_replicate=256)
    assert replica_seconds(ddp, replicas) > 1.2 * replica_seconds(whole, replicas)
    shards = Layout(dp_replicate=32, dp_shard=8)  # FSDP2 reduces layer by layer with any size of buckets
    assert replica_seconds(ddp, shards) == replica_seconds(whole, shards)


def test_a_matrix_that_exceeds_a_bucket_is_reduced_at_once() -> None:
    tiny, smaller = (replace(NATIVE, bucket_bytes=size * 2.0**20) for size in (0.01, 0.001))
    assert replica_seconds(tiny, Layout(dp_replicate=256)) == replica_seconds(smaller, Layout(dp_replicate=256))


def test_buckets_are_reduced_beside_the_backward_pass() -> None:
    """Also where reductions between ranks that share states come after it, as in nanotron."""
    after, whole = (replace(NATIVE, hides_reductions=False, bucket_bytes=size) for size in (25 * 2.0**20, 0.0))
    short, long = (replica_seconds(after, Layout(dp_replicate=256), micro_batch=size) for size in (1, 64))
    assert long < 0.7 * short
    assert replica_seconds(whole, Layout(dp_replicate=256), micro_batch=64) == pytest.approx(
        replica_seconds(whole, Layout(dp_replicate=256))
    )


def test_unsharded_frozen_weights_are_not_gathered() -> None:
    """Megatron gathers the parameters that its optimizer updates; with a frozen base these are the adapters."""
    lora, layout = replace(WORKLOAD, train="lora"), Layout(dp_shard=8)
    kept = Candidate(layout=layout, knobs=Knobs(micro_batch=1, reshard_after_forward=False, no_sync=True))
    columns = table([row_of(kept, 4)])
    copies = replace(NATIVE, memory_traits=replace(NATIVE.memory_traits, parameters="copies"))
    torch, megatron = (
        price(ROUND, cluster(), lora, columns, NEUTRAL, stack).communication_seconds[0] for stack in (NATIVE, copies)
    )
    assert megatron < 0.3 * torch  # only latency remains


def test_quantized_weights_are_gathered_in_4_bits() -> None:
    """4 bits per weight with a scale per block instead of 16 bits, in the same number of calls."""
    columns = table([row_of(Candidate(layout=Layout(dp_shard=8), knobs=Knobs(micro_batch=1)), 4)])
    deep = replace(DENSE, layers=64)
    lora, qlora = (
        price(deep, without_latency(1, 8), replace(WORKLOAD, train=train), columns, NEUTRAL, NATIVE).communication_seconds[0]
        for train in ("lora", "qlora")
    )
    assert 0.25 < qlora / lora < 0.35


@pytest.mark.parametrize(("nodes", "bucket"), [(4, 40e6), (16, 128e6)])
def test_megatron_buckets_collectives_of_small_layers(nodes: int, bucket: float) -> None:
    """Buckets of 40 million parameters, or a million for each rank, instead of a call per layer, on links with high latency."""
    ranks = 8 * nodes
    kept = Candidate(layout=Layout(dp_shard=ranks), knobs=Knobs(reshard_after_forward=False, no_sync=True))
    slow = replace(INTER, bytes_per_second=1e15, latency_seconds=1e-3)
    on = cluster(nodes, intra=replace(INTRA, bytes_per_second=1e15), inter=slow)
    copies = replace(NATIVE, memory_traits=replace(NATIVE.memory_traits, parameters="copies"))
    columns, work = table([row_of(kept, 1)]), replace(WORKLOAD, global_batch=ranks)
    torch, megatron = (price(DENSE, on, work, columns, NEUTRAL, stack).communication_seconds[0] for stack in (NATIVE, copies))
    call = (ranks - 1) * float(group(np.array([float(ranks)]), np.array([1.0]), on).hop_seconds[0])
    ends = torch - 2 * DENSE.layers * call
    assert megatron - ends == pytest.approx(2 * DENSE.layers * call * DENSE.dense_layer_parameters / bucket, rel=0.01)


@pytest.mark.parametrize(("layout", "share"), [(Layout(pp=2, dp_shard=8), 1), (Layout(pp=16), 8), (Layout(pp=8, tp=2), 4)])
def test_ranks_of_a_stage_share_the_ports_between_nodes(layout: Layout, share: int) -> None:
    """One port of 8 GB/s for eight devices: a single rank gets all of it, each of eight ranks an eighth."""
    port = replace(INTER, bytes_per_second=1e9, pair_bytes_per_second=8e9, latency_seconds=0.0)
    columns = table([row_of(Candidate(layout=layout, knobs=Knobs(micro_batch=1)), 4)])
    v = view(columns, WORKLOAD)
    steps = rank_steps(DENSE, cluster(2, inter=port), WORKLOAD, NATIVE, v, work_of(DENSE, WORKLOAD, NATIVE, v), NEUTRAL)
    activation = WORKLOAD.seq_len * DENSE.hidden_size * 2
    assert steps.hop_seconds[0] == pytest.approx(activation / (share * 1e9))


def test_some_stacks_gather_the_heads_of_normed_queries_and_keys() -> None:
    """Both passes of full recomputation gather them; the gather's bytes are those of all heads."""
    model = replace(DENSE, qk_norm=True)
    candidate = Candidate(layout=Layout(tp=2), knobs=Knobs(micro_batch=1, recompute="full", sequence_parallel=True))
    times = candidate.accumulation(WORKLOAD)
    on, rows = without_latency(1, 2), table([row_of(candidate, times)])
    seconds = {
        gathers: price(model, on, WORKLOAD, rows, NEUTRAL, replace(NATIVE, gathers_normed_heads=gathers)).time["tp_communication"][
            0
        ]
        for gathers in (True, False)
    }
    gathered = WORKLOAD.seq_len * (model.query_width + model.key_value_width / 2) * 2 / 2
    expected = 2 * times * model.layers * gathered / INTRA.bytes_per_second
    assert float(seconds[True] - seconds[False]) == pytest.approx(expected, rel=0.02)
