"""Traffic of a step: bytes that a rank of the first stage sends over its links, by mesh axis and collective.

The formulas of ``cost.comm`` give seconds; on links of one byte per second without latency these are bytes.
"""

from dataclasses import replace

import numpy as np

from strategist.contract.cluster import Cluster, Link
from strategist.contract.model import ModelShape
from strategist.contract.rank_observation import Traffic
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, View, view
from strategist.cost.comm import collectives, gathers_keys, stage_collectives
from strategist.cost.layer_flops import layer_work
from strategist.cost.model_states import stages, state_bytes
from strategist.cost.process_groups import Groups
from strategist.cost.step import gather_seconds
from strategist.expr.columns import Columns

GATHER, SCATTER, REDUCE, EXCHANGE, SEND = "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"


def step_traffic(
    model: ModelShape, cluster: Cluster, workload: Workload, columns: Columns, stack: Stack = NATIVE
) -> tuple[Traffic, ...]:
    """Bytes that one candidate sends in a step with ring algorithms, largest first; stages count as split evenly."""
    v = view(columns, workload)
    rows = [
        Traffic(axis=axis, collective=collective, message_bytes=float(size[0]))
        for (axis, collective), size in _bytes(model, _with_unit_links(cluster), workload, stack, v).items()
        if float(size[0]) > 0
    ]
    return tuple(sorted(rows, key=lambda row: -row.message_bytes))


def _with_unit_links(cluster: Cluster) -> Cluster:
    """The cluster with links whose seconds are bytes."""
    return replace(cluster, intra=_unit_link(cluster.intra), inter=_unit_link(cluster.inter))


def _unit_link(link: Link) -> Link:
    return replace(
        link, bytes_per_second=1.0, pair_bytes_per_second=1.0, latency_seconds=0.0, line_bytes_per_second=None,
        reduce_bytes_per_second=None, lost_per_doubling=0.0,
    )  # fmt: skip


def _bytes(model: ModelShape, cluster: Cluster, workload: Workload, stack: Stack, v: View) -> dict[tuple[str, str], Floats]:
    per, stage, work = (
        state_bytes(model, workload, stack),
        stages(model, v, stack.memory_traits)[0],
        layer_work(model, workload, stack, v),
    )
    groups = Groups(cluster=cluster, v=v)
    links = collectives(model, workload, stack, stage, work, per, groups)
    stage_links = stage_collectives(model, workload, stack, stage, per, groups)
    n, micro_batches, reductions = stage.layers, v.accumulation, v.reductions
    tensor = micro_batches * (n * links.tp + stage.has_head * links.head)
    sequence_parallel = bool(v.sequence_parallel.all())
    shards = "dp_shard, cp" if (v.cp > 1).all() else "dp_shard"
    return {
        (shards, GATHER): gather_seconds(n, links, stage_links, v) + stage_links.update,
        (shards, SCATTER): reductions * (n * links.reduce + stage_links.reduce),
        ("dp_replicate", REDUCE): reductions * stage_links.replica,
        ("tp", f"{GATHER}, {SCATTER}" if sequence_parallel else REDUCE): tensor,
        ("cp", GATHER if gathers_keys(model, workload) else SEND): micro_batches * n * links.cp,
        ("ep", EXCHANGE): micro_batches * n * links.ep,
        ("pp", SEND): np.where(v.streamed, 2 * micro_batches * n, v.transfers) * links.pp,
    }
