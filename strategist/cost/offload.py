"""Offload: seconds in which state travels between device and host, and in which the hosts update it."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.stack import Stack
from strategist.cost.states import StateBytes
from strategist.cost.view import Floats, View

ACCUMULATE_BYTES = 16 * 12 / 28
"""Adding a gradient on the host, in the bytes that hosts' update rates count: an update of AdamW, which counts as 16 bytes a
parameter, moves 28, and the addition 12 (4 read twice and 4 written), whatever the optimizer."""


@dataclass(frozen=True, kw_only=True)
class OffloadSeconds:
    """``forward`` and ``backward`` travel with each micro-batch, beside its computation; ``once`` with each step, beside all of it;
    ``update`` is the hosts' own work and the traffic around it, beside nothing of these but what ``step`` says."""

    forward: Floats
    backward: Floats
    once: Floats
    update: Floats


def offload_seconds(shard: Floats, stage: Floats, per: StateBytes, stack: Stack, v: View, cluster: Cluster) -> OffloadSeconds:
    """``shard`` and ``stage`` are parameters of one rank's shard and of the whole stage.

    FSDP2 copies a shard in its stored type before each gather and its gradient back after each reduction; streamed stages are
    copied in the compute type once forward and once backward, and their gradients back once, in each round.
    """
    rate = cluster.host_bytes_per_second
    trained = per.trained if per.frozen else 1.0
    load = np.where(v.offload_all, shard * per.stored / rate, 0.0)
    gradient = shard * trained * per.gradient / rate
    streams = v.rounds * stage * (2 * per.gathered + trained * per.gradient) / rate
    update = np.where(v.offload_all | v.offload_optimizer | v.streamed, _update(shard, stage, per, stack, v, cluster), 0.0)
    return OffloadSeconds(
        forward=load,
        backward=np.where(v.reshard | v.reshard_subgroup, load, 0.0) + np.where(v.offload_all & ~v.postponed, gradient, 0.0),
        once=np.where(
            v.streamed,
            np.where(v.late_update, np.maximum(streams, update), streams),
            np.where(v.offload_all & v.postponed, gradient, 0.0),
        ),
        update=np.where(v.late_update, 0.0, update),
    )


def waiting_seconds(copy: Floats, room: Floats, others: Floats) -> Floats:
    """Seconds of one layer's pass in which the device waits for its activations, on their way to the host or back.

    The ``copy`` runs beside as much computation as there is ``room``, after ``others`` that keep the link busy; the rest is waited
    for (arXiv 1602.08124, section 3.2).
    """
    return np.maximum(others + copy - room, 0.0) - np.maximum(others - room, 0.0)


def shared_link(cluster: Cluster) -> float:
    """Share of a device's link to its host that collectives inside the node take: none over NVLink. Rings without peer access are
    slower than the link is, and leave room."""
    if not cluster.intra.fabric.startswith("pcie"):
        return 0.0
    return min(1.0, cluster.intra.bytes_per_second / cluster.host_bytes_per_second)


def _update(shard: Floats, stage: Floats, per: StateBytes, stack: Stack, v: View, cluster: Cluster) -> Floats:
    """The host works on all shards of a node at once, after gradients came and before parameters go; a device reads its states
    over its link while it writes those before back."""
    rate = cluster.host_bytes_per_second
    trained = per.trained if per.frozen else 1.0
    if stack.offloaded_update == "device":
        return shard * trained * (min(per.stored, 4.0) + per.optimizer) / rate
    reductions = np.where(v.postponed, 1.0, v.accumulation)
    held = trained * (4.0 + per.gradient + per.optimizer)
    adding = np.where(v.offload_all, (reductions - 1) * trained * ACCUMULATE_BYTES, 0.0)
    per_node = np.where(v.streamed, stage, shard) * cluster.gpus_per_node
    around = np.where(v.offload_optimizer, shard * trained * (per.gradient + 4.0) / rate, 0.0)
    seconds: Floats = per_node * (held + adding) / cluster.host_optimizer_bytes_per_second + around
    return seconds
