"""Memory of the fullest device at the worst instant of a step, and of the hosts."""

from dataclasses import dataclass
from math import log

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.keeps import Keeps
from strategist.contract.stages import AWAY_WINDOW
from strategist.cost.states import Stage, StateBytes
from strategist.cost.view import Floats, View
from strategist.cost.work import HeadWork, LayerWork
from strategist.expr.columns import Columns

PARTS = (
    "parameters", "unsharded_parameters", "gradients", "optimizer", "activations", "logits", "communication", "allocator",
)  # fmt: skip

TRANSIENT = ("unsharded_parameters", "activations", "logits", "communication")
"""What comes and goes within a step."""

FLOOR_BYTES = 0.25 * 2**30
"""What an allocator that caches holds at least beside tensors: workspaces of cuBLAS, and segments of which a part is used (fitted
to nanotron's smallest runs, 1.6 to 6 GiB)."""

COMMUNICATOR_BYTES = 2**30
"""What NCCL takes of a device for one communicator, beside torch's allocator: 4 MiB a channel and connection (NCCL_BUFFSIZE), as
much again for its other protocols, 32 channels, both directions, rings and trees. Usable memory leaves room for one."""

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")

Parts = dict[str, Floats]


@dataclass(frozen=True, kw_only=True)
class _Local:
    """Parameters of a stage as one rank sees them: its shard, one gathered layer, and the gathered ends."""

    shard: Floats
    layer: Floats
    ends: Floats
    stage: Floats


def _local(stage: Stage, v: View) -> _Local:
    """Parameters are cut by tp and the FSDP group, those of a gathered layer by tp alone."""
    layer = stage.gathered_layer(v)
    ends = stage.ends / v.tp
    return _Local(shard=stage.shard(v), layer=layer, ends=ends, stage=stage.layers * layer + ends)


def device_memory(
    stage: Stage, per: StateBytes, layer: LayerWork, head: HeadWork, v: View, keeps: Keeps, slack: float, factor: float
) -> Parts:
    """Bytes by part at the worst of five instants: loss, first and last layer of the backward pass, reduction of the ends'
    gradients, optimizer step.

    ``slack`` is the allocator's share of what comes and goes, ``factor`` a calibration of that. Of a stage's micro-batches in
    flight all hold every layer until the first of them has gone back through it.
    """
    local = _local(stage, v)
    parameters, gradients, optimizer = _states(stage, local, per, v, keeps)
    resident, running = _gathered(stage, local, head.matmul_flops / (2 * v.tokens), per, v, keeps)
    moving, ending = (_gradient_buffers(size, per, v, keeps) for size in (local.layer, local.ends))
    whole = stage.layers * layer.saved_bytes
    saved = _here(stage.in_flight * whole, layer, v)
    others = np.where(v.activations_away, saved, saved - whole + np.minimum(whole, layer.saved_bytes))
    again = layer.again_bytes + layer.backward_bytes + layer.gathered_bytes
    linger = np.where(v.accumulation > 1, np.ceil(stage.has_head) * head.lingering_bytes, 0.0)
    linger = linger + np.ceil(stage.has_head) * (stage.losses_in_flight - 1) * head.kept_bytes
    logits = np.ceil(stage.has_head) * head.logit_bytes + linger
    always = v.ddp | (keeps.parameters == "copies")  # buckets; else gradients of earlier micro-batches
    before = (v.accumulation > 1) & (stage.losses_in_flight == 1)
    early = np.where(before | always, gradients, 0.0)
    zero = np.zeros_like(saved)
    reduced = np.where(v.accumulation > 1, gradients, gradients * (1 - local.ends / local.stage))
    resident, running, moving, ending, saved, again, others, logits = (
        factor * part for part in (resident, running, moving, ending, saved, again, others, logits)
    )
    gathered = resident + running
    instants = (
        {
            "gradients": early,
            "unsharded_parameters": resident,
            "activations": saved + layer.gathered_bytes,
            "logits": logits,
            "communication": zero,
        },
        {
            "gradients": early,
            "unsharded_parameters": gathered,
            "activations": saved + again,
            "logits": linger,
            "communication": moving,
        },
        {
            "gradients": gradients + keeps.piled_gradient_bytes * local.stage,
            "unsharded_parameters": gathered,
            "activations": others + again,
            "logits": linger,
            "communication": moving,
        },
        {
            "gradients": reduced,
            "unsharded_parameters": zero,
            "activations": zero,
            "logits": linger,
            "communication": np.where(v.ddp | v.streamed | v.postponed, 0.0, ending),
        },
        {
            "gradients": gradients + (0.5 * optimizer if keeps.foreach else 0.0),
            "unsharded_parameters": zero,
            "activations": zero,
            "logits": zero,
            "communication": zero,
        },
    )
    worst = _worst(instants)
    reserved: Floats = slack * sum((worst[name] for name in TRANSIENT), start=zero) + (FLOOR_BYTES if slack else 0.0)
    return {"parameters": parameters, "optimizer": optimizer, "allocator": reserved, **worst}


def _here(saved: Floats, layer: LayerWork, v: View) -> Floats:
    """Of what a stage saves, the part on the device: all, or a window of layers; of such as are alike in pairs, of two pairs."""
    window = np.where(v.recompute_alternate, AWAY_WINDOW + 1, AWAY_WINDOW) * layer.saved_bytes
    return np.where(v.activations_away, np.minimum(saved, window), saved)


def _states(stage: Stage, local: _Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats, Floats]:
    """Parameters, gradients and optimizer states that stay on the device between the layers' turns."""
    on_host = v.offload_all | v.streamed
    cut = v.fsdp_ranks * v.tp
    stored = (stage.layers * (stage.dense + stage.expert) * per.stored + stage.ends * per.embedding) / cut
    stored = stored + stage.layers * stage.repeated(v) * per.stored / v.fsdp_ranks
    trained = local.shard * (per.trained if per.frozen else 1.0)
    adapters = trained * (4.0 if per.frozen else 0.0)
    # Postponed gradients wait unsharded; reduced ones lie beside them only layer by layer.
    fsdp = (~v.ddp & (v.fsdp_ranks * v.dp_replicate > 1)) | v.offload_all
    waiting = v.postponed & fsdp if keeps.parameters == "copies" else v.postponed & (v.accumulation > 1) & fsdp
    whole = local.stage * (per.gradient if keeps.parameters == "copies" else v.reduce_bytes) * (per.trained if per.frozen else 1.0)
    gradients = np.where(waiting, whole, np.where(on_host, 0.0, trained * per.gradient))
    gradients = np.where(v.update_at_once & ~on_host, gradients / np.maximum(stage.layers, 1.0), gradients)
    gradients = gradients + np.where(v.low_rank_hook, local.stage * 4.0, 0.0)  # PowerSGD remembers what it left out
    optimizer = np.where(on_host | v.offload_optimizer, 0.0, trained * per.optimizer)
    return np.where(on_host, 0.0, stored + adapters), gradients, optimizer


def _gathered(stage: Stage, local: _Local, head: Floats, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats]:
    """Parameters in the compute type that stay through a micro-batch, the ends and what is not resharded, of streamed ends the
    ``head`` alone; and those of layers that come and go: this one and the prefetched one.

    DDP computes in copies that autocast keeps from forward to backward, some frameworks always in whole ones; in fp32 none are
    needed.
    """
    two_layers = np.minimum(stage.layers, 2.0) * local.layer
    subgroup = (local.stage - local.ends) / np.maximum(v.reshard_group, 1.0)
    kept = np.where(v.reshard | v.streamed, 0.0, np.where(v.reshard_subgroup, subgroup, local.stage - local.ends))
    ends = np.where(v.streamed, head, local.ends if keeps.holds_ends else 0.0)
    copies = local.stage * (per.gathered if per.gathered < per.stored and not per.frozen else 0.0)
    copied = (v.fsdp_ranks == 1 if keeps.parameters == "copies" else v.ddp) & ~v.streamed & ~v.offload_all
    comes = v.reshard | v.reshard_subgroup | v.streamed
    return (
        np.where(copied, copies, (kept + ends) * per.gathered),
        np.where(~copied & comes, two_layers * per.gathered, 0.0),
    )


def _gradient_buffers(parameters: Floats, per: StateBytes, v: View, keeps: Keeps) -> Floats:
    """The gradients of ``parameters`` in the compute type, and in the type that they are reduced in: FSDP2 frees the input of one
    reduce-scatter before it makes that of the next (``FSDPParamGroup.post_backward``)."""
    if per.frozen:
        return np.zeros_like(v.tp)
    streamed = 2 * parameters * (per.gathered + v.reduce_bytes)
    copied = np.where(v.reduce_bytes > per.gathered, v.reduce_bytes, 0.0) if keeps.flat else v.reduce_bytes
    sharded = parameters * (per.gathered + copied)
    return np.where(v.streamed, streamed, np.where(v.ddp, parameters * per.gathered, sharded))


def _worst(instants: tuple[Parts, ...]) -> Parts:
    """The parts of each candidate's fullest instant."""
    best = instants[0]
    total = sum(best.values())
    for instant in instants[1:]:
        other = sum(instant.values())
        more = other > total
        best = {name: np.where(more, instant[name], best[name]) for name in best}
        total = np.maximum(total, other)
    return best


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
