"""Memory of the fullest device at the worst instant of a step, and of the hosts."""

from math import log

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.keeps import Keeps
from strategist.cost.instants import TRANSIENT, Local, Parts, Rank, local_of, worst_instant
from strategist.cost.states import Stage, StateBytes
from strategist.cost.view import Floats, View
from strategist.cost.work import HeadWork, LayerWork
from strategist.expr.columns import Columns

PARTS = (
    "parameters", "unsharded_parameters", "gradients", "optimizer", "activations", "logits", "communication", "allocator",
)  # fmt: skip

FLOOR_BYTES = 0.25 * 2**30
"""What an allocator that caches holds at least beside tensors: workspaces of cuBLAS, and segments of which a part is used (fitted
to nanotron's smallest runs, 1.6 to 6 GiB)."""

COMMUNICATOR_BYTES = 2**30
"""What NCCL takes of a device for one communicator, beside torch's allocator: 4 MiB a channel and connection (NCCL_BUFFSIZE), as
much again for its other protocols, 32 channels, both directions, rings and trees. Usable memory leaves room for one."""

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")


def device_memory(
    stage: Stage, per: StateBytes, layer: LayerWork, head: HeadWork, v: View, keeps: Keeps, slack: float, factor: float
) -> Parts:
    """Bytes by part at the worst instant of a step.

    ``slack`` is the allocator's share of what comes and goes, ``factor`` a calibration of that.
    """
    local = local_of(stage, head, v)
    parameters, gradients, first, optimizer = _states(stage, local, per, v, keeps)
    rank = Rank(
        stage=stage,
        local=local,
        per=per,
        layer=layer,
        head=head,
        v=v,
        keeps=keeps,
        gradients=gradients,
        first_gradients=first,
        optimizer=optimizer,
    )
    worst = worst_instant(rank, factor)
    zero = np.zeros_like(v.tp)
    reserved: Floats = slack * sum((worst[name] for name in TRANSIENT), start=zero) + (FLOOR_BYTES if slack else 0.0)
    return {"parameters": parameters, "optimizer": optimizer, "allocator": reserved, **worst}


def _states(stage: Stage, local: Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats, Floats, Floats]:
    """Parameters, gradients and optimizer states that stay on the device between the layers' turns; of gradients those of all, and
    of the stage that goes back first where stages do one by one: the last one has its own, whole, beside shards of the others."""
    on_host = v.offload_all | v.streamed
    cut = v.fsdp_ranks * v.tp
    stored = (stage.layers * (stage.dense + stage.expert) * per.stored + stage.ends * per.embedding) / cut
    stored = stored + stage.layers * stage.repeated(v) * per.stored / v.fsdp_ranks
    trained = local.shard * (per.trained if per.frozen else 1.0)
    adapters = trained * (4.0 if per.frozen else 0.0)
    # Postponed gradients wait unsharded; reduced ones lie beside them only layer by layer.
    fsdp = (~v.ddp & (v.fsdp_ranks * v.dp_replicate > 1)) | v.offload_all
    waiting = v.postponed & fsdp if keeps.parameters == "copies" else v.postponed & (v.accumulation > 1) & fsdp
    each = (per.gradient if keeps.parameters == "copies" else v.reduce_bytes) * (per.trained if per.frozen else 1.0)
    reduced, ends, whole = np.where(on_host, 0.0, trained * per.gradient), local.ends * each, local.stage * each
    apart = v.one_by_one if keeps.parameters == "shards" else np.zeros_like(v.one_by_one)
    own = (whole - ends) / v.virtual_stages
    last = own + np.where(stage.has_head > 0, 0.0, ends) + (1 - 1 / v.virtual_stages) * reduced
    first = np.where(waiting, own + np.where(stage.has_head > 0, ends, 0.0), reduced / v.virtual_stages)
    gradients = np.where(waiting, np.where(apart, last, whole), reduced)
    early = v.update_at_once & ~on_host & (v.accumulation == 1)  # several are summed up first
    gradients = np.where(early, gradients / np.maximum(stage.layers, 1.0), gradients)
    gradients = gradients + np.where(v.low_rank_hook, local.stage * 4.0, 0.0)  # PowerSGD remembers what it left out
    optimizer = np.where(on_host | v.offload_optimizer, 0.0, trained * per.optimizer)
    return np.where(on_host, 0.0, stored + adapters), gradients, np.where(apart, first, gradients), optimizer


def waiting_memory(stage: Stage, layer: LayerWork, v: View, cluster: Cluster) -> Floats:
    """Bytes per node of activations that wait there, all devices of a node as ``stage``: those of its micro-batches in flight, in
    page-locked blocks that torch rounds up to powers of two (``CachingHostAllocator``), on average by 1 / ln 2."""
    saved = stage.in_flight * stage.layers * layer.saved_bytes * cluster.gpus_per_node
    return np.where(v.activations_away, saved / log(2), 0.0)


def host_memory(parameters: float, layers: int, layer: LayerWork, per: StateBytes, v: View, cluster: Cluster) -> Floats:
    """Bytes per node: all states, or for ``optimizer`` those that an update there works on, with pinned copies of the parameters
    and gradients that travel (arXiv 2101.06840). A frozen base is never updated. Streamed stages have a copy in the compute type,
    unless they are stored in it or smaller, and the inputs of all layers wait there for a round of micro-batches."""
    updated = (per.trained if per.frozen else 1.0) * (4.0 + per.gradient + per.optimizer)
    held = updated + (per.stored if per.frozen else 0.0)
    copies = parameters * v.dp_replicate / cluster.nodes
    away = np.where(v.offload_all, held, np.where(v.offload_optimizer, updated, 0.0))
    cast = per.gathered if per.stored > per.gathered else 0.0
    waiting = np.where(v.streamed, layers * layer.input_bytes * v.round_batches, 0.0)
    return copies * np.where(v.streamed, held + cast, away) + waiting


def communicator_memory(columns: Columns) -> Floats:
    """Bytes of a device that communicators take beyond the one that usable memory leaves room for."""
    axes = sum((columns.values[f"layout.{name}"] > 1).astype(np.float64) for name in AXES)
    return COMMUNICATOR_BYTES * np.maximum(axes - 1.0, 0.0)
