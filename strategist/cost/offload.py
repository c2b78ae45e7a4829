"""Offload: seconds of copies between device and host, and of optimizer updates on the host."""

import numpy as np

from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.model_states import StateBytes
from strategist.cost.optimizer_update import NORM_PASSES, scaling_passes
from strategist.cost.rates import Rates
from strategist.frozen import frozen

COUNTED_SHARE = 16 / 28
"""Ratio of counted to moved bytes of the update on hosts: their update rates count 16 bytes per parameter of AdamW's update,
which moves 28.
"""

ADDING_BYTES = 12.0
"""Bytes moved per parameter to add a gradient to that of earlier micro-batches: two reads and one write of 4."""


@frozen
class OffloadBytes:
    """Bytes over a device's host link, and bytes of the update on the hosts.

    forward, backward: of each micro-batch.
    per_step: of each step.
    around_update: of each step, before and after the update.
    updated: bytes that a node's hosts process in the update, as their update rate counts, times what ranks lose by sharing cores.
    """

    forward: Floats
    backward: Floats
    per_step: Floats
    around_update: Floats
    updated: Floats


@frozen
class OffloadSeconds:
    """Seconds of offload.

    forward, backward: copies per micro-batch, which overlap with its forward and backward pass.
    per_step: copies per step, which overlap with the whole step.
    update: optimizer update on the hosts, with its copies; whether it overlaps is decided in :mod:`strategist.cost.step`.
    """

    forward: Floats
    backward: Floats
    per_step: Floats
    update: Floats


def offload_bytes(
    shard: Floats, stage: Floats, per: StateBytes, workload: Workload, stack: Stack, v: View, gpus_per_node: int
) -> OffloadBytes:
    """Bytes of offload; ``shard`` and ``stage`` are the parameters of one rank's shard and of the whole stage.

    FSDP2 copies a shard in its stored type before each all-gather, and its gradient back after each reduce-scatter. Streamed stages
    are copied in the compute type once forward and once backward in each round, and their gradients back once. The host updates all
    shards of a node at once, after gradients arrived and before parameters leave. A device-side update of offloaded states reads
    them over the link while it writes the previous ones back.
    """
    trained = per.trained if per.frozen else 1.0
    loaded, gradient = np.where(v.offload_all, shard * per.stored, 0.0), shard * trained * per.gradient
    streamed_bytes = v.rounds * stage * (2 * per.gathered + trained * per.gradient)
    offloaded, on_device = v.offload_all | v.offload_optimizer | v.streamed, stack.offloaded_update == "device"
    preparation_bytes = _update_preparation_bytes(per, workload, stack, v)
    contention = stack.contended_update if gpus_per_node > 1 else 1.0
    update_bytes = contention * trained * (4.0 + per.gradient + per.optimizer + COUNTED_SHARE * preparation_bytes)
    around_update = np.where(v.offload_optimizer, shard * trained * (per.gradient + 4.0), 0.0)
    if on_device:
        around_update = np.where(offloaded, shard * trained * (min(per.stored, 4.0) + per.optimizer), 0.0)
    return OffloadBytes(
        forward=loaded,
        backward=np.where(v.frees_parameters, loaded, 0.0) + np.where(v.offload_all & ~v.no_sync, gradient, 0.0),
        per_step=np.where(v.streamed, streamed_bytes, np.where(v.offload_all & v.no_sync, gradient, 0.0)),
        around_update=around_update,
        updated=np.where(offloaded & ~on_device, np.where(v.streamed, stage, shard) * gpus_per_node * update_bytes, 0.0),
    )


def _update_preparation_bytes(per: StateBytes, workload: Workload, stack: Stack, v: View) -> Floats:
    """Bytes moved in host memory per parameter before and after the update: accumulation of gradients, their norm if devices hold
    none, their clipping, and the copy in the compute type that streamed stages transfer.
    """
    adding = np.where(v.offload_all, (v.reductions - 1) * ADDING_BYTES, 0.0)
    norm = np.where(v.offload_all | v.streamed, NORM_PASSES, 0.0)
    cast = 4.0 + per.gathered if per.stored > per.gathered else 0.0
    return adding + (norm + scaling_passes(workload, stack, v)) * per.gradient + np.where(v.streamed, cast, 0.0)


def offload_seconds(traffic: OffloadBytes, rates: Rates, v: View) -> OffloadSeconds:
    """Seconds at the rates of the host link and of the hosts. An asynchronous update runs beside the copies of streamed stages."""
    rate = rates.host_bytes_per_second
    update = traffic.updated / rates.host_optimizer_bytes_per_second + traffic.around_update / rate
    per_step = traffic.per_step / rate
    return OffloadSeconds(
        forward=traffic.forward / rate,
        backward=traffic.backward / rate,
        per_step=np.where(v.streamed & v.async_optimizer_step, np.maximum(per_step, update), per_step),
        update=np.where(v.async_optimizer_step, 0.0, update),
    )


def exposed_copy_seconds(copy: Floats, computation: Floats, earlier: Floats) -> Floats:
    """Exposed seconds of one layer's activation copies to or from the host.

    Up to ``computation`` seconds hide the ``copy``, after ``earlier`` transfers that occupy the link; the rest is exposed (arXiv
    1602.08124, section 3.2).
    """
    return np.maximum(earlier + copy - computation, 0.0) - np.maximum(earlier - computation, 0.0)
