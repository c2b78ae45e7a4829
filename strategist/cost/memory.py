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
    """Parameters of a stage as one rank sees them: its shard, one gathered layer, the gathered ends and of these the head."""

    shard: Floats
    layer: Floats
    ends: Floats
    head: Floats
    stage: Floats


def _local(stage: Stage, head: HeadWork, v: View) -> _Local:
    """Parameters are cut by tp and the FSDP group, those of a gathered layer by tp alone."""
    layer = stage.gathered_layer(v)
    ends = stage.ends / v.tp
    last = stage.has_head * head.matmul_flops / (2 * v.tokens)
    return _Local(shard=stage.shard(v), layer=layer, ends=ends, head=last, stage=stage.layers * layer + ends)


def device_memory(
    stage: Stage, per: StateBytes, layer: LayerWork, head: HeadWork, v: View, keeps: Keeps, slack: float, factor: float
) -> Parts:
    """Bytes by part at the worst instant of a step (``_instants``).

    ``slack`` is the allocator's share of what comes and goes, ``factor`` a calibration of that.
    """
    local = _local(stage, head, v)
    parameters, gradients, optimizer = _states(stage, local, per, v, keeps)
    instants = _instants(stage, local, per, layer, head, v, keeps, gradients, optimizer)
    worst = _worst([{name: part * (factor if name in TRANSIENT else 1.0) for name, part in one.items()} for one in instants])
    zero = np.zeros_like(v.tp)
    reserved: Floats = slack * sum((worst[name] for name in TRANSIENT), start=zero) + (FLOOR_BYTES if slack else 0.0)
    return {"parameters": parameters, "optimizer": optimizer, "allocator": reserved, **worst}


def _instants(
    stage: Stage,
    local: _Local,
    per: StateBytes,
    layer: LayerWork,
    head: HeadWork,
    v: View,
    keeps: Keeps,
    gradients: Floats,
    optimizer: Floats,
) -> list[Parts]:
    """What comes and goes, and gradients, at the instants that can be the worst, in the order of a step.

    Of a stage's micro-batches in flight all hold every layer until the first of them has gone back through it.
    """
    resident, running = _gathered(stage, local, per, v, keeps)
    moving, ending = (_gradient_buffers(size, per, v, keeps) for size in (local.layer, local.ends))
    whole = stage.layers * layer.saved_bytes
    saved = _here(stage.in_flight * whole, layer, v)
    others = np.where(v.activations_away, saved, saved - whole + np.minimum(whole, layer.saved_bytes))
    again = layer.again_bytes + layer.backward_bytes + layer.gathered_bytes
    has_head = np.ceil(stage.has_head)
    linger = np.where(v.accumulation > 1, has_head * head.lingering_bytes, 0.0)
    linger = linger + has_head * (stage.losses_in_flight - 1) * (head.kept_bytes + head.input_bytes)
    always = v.ddp | (keeps.parameters == "copies")  # buckets; else gradients of earlier micro-batches
    before = (v.accumulation > 1) & (stage.losses_in_flight == 1)
    early = np.where(before | always, gradients, 0.0)
    reduced = np.where(v.accumulation > 1, gradients, gradients * (1 - local.ends / local.stage))
    gathered = resident + running
    cast = np.where(v.autocast, (stage.layers * local.layer + local.head) * per.gathered, 0.0)
    autocast_forward = _instant(
        v, gradients=early, unsharded=cast, activations=saved, logits=linger + has_head * head.computed_bytes
    )
    loss = _instant(
        v,
        gradients=early,
        unsharded=resident,
        activations=saved + layer.gathered_bytes + has_head * head.input_bytes,
        logits=linger + has_head * head.logit_bytes,
    )
    last_layer = _instant(v, gradients=early, unsharded=gathered, activations=saved + again, logits=linger, communication=moving)
    first_layer = _instant(
        v,
        gradients=gradients + keeps.piled_gradient_bytes * local.stage,
        unsharded=gathered,
        activations=others + again,
        logits=linger,
        communication=moving,
    )
    ends = _instant(v, gradients=reduced, logits=linger, communication=np.where(v.ddp | v.streamed | v.postponed, 0.0, ending))
    update = _instant(v, gradients=gradients + (0.5 * optimizer if keeps.foreach else 0.0))
    return [autocast_forward, loss, last_layer, first_layer, ends, update]


def _instant(
    v: View,
    *,
    gradients: Floats,
    unsharded: Floats | float = 0.0,
    activations: Floats | float = 0.0,
    logits: Floats | float = 0.0,
    communication: Floats | float = 0.0,
) -> Parts:
    zero = np.zeros_like(v.tp)
    return {
        "gradients": gradients,
        "unsharded_parameters": unsharded + zero,
        "activations": activations + zero,
        "logits": logits + zero,
        "communication": communication + zero,
    }


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
    early = v.update_at_once & ~on_host & (v.accumulation == 1)  # several are summed up first
    gradients = np.where(early, gradients / np.maximum(stage.layers, 1.0), gradients)
    gradients = gradients + np.where(v.low_rank_hook, local.stage * 4.0, 0.0)  # PowerSGD remembers what it left out
    optimizer = np.where(on_host | v.offload_optimizer, 0.0, trained * per.optimizer)
    return np.where(on_host, 0.0, stored + adapters), gradients, optimizer


def _gathered(stage: Stage, local: _Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats]:
    """Parameters in the compute type that stay through a micro-batch, the ends and what is not resharded, of streamed ends the
    head alone; and those of layers that come and go: this one and the prefetched one.

    Some frameworks compute in whole copies. Autocast copies what matmuls multiply with, so not the embedding, and autograd keeps
    the copies that a layer's backward pass needs; a layer that is computed again makes its own again. In fp32 none are needed.
    """
    two_layers = np.minimum(stage.layers, 2.0) * local.layer
    subgroup = (local.stage - local.ends) / np.maximum(v.reshard_group, 1.0)
    kept = np.where(v.reshard | v.streamed, 0.0, np.where(v.reshard_subgroup, subgroup, local.stage - local.ends))
    ends = np.where(v.streamed, local.head, local.ends if keeps.holds_ends else 0.0)
    comes = v.reshard | v.reshard_subgroup | v.streamed
    resident, running = (kept + ends) * per.gathered, np.where(comes, two_layers * per.gathered, 0.0)
    casts = per.gathered if per.gathered < per.stored and not per.frozen else 0.0
    if keeps.parameters == "copies":
        copied = (v.fsdp_ranks == 1) & ~v.streamed & ~v.offload_all
        return np.where(copied, local.stage * casts, resident), np.where(copied, 0.0, running)
    copied = v.ddp & ~v.streamed & ~v.offload_all
    again = v.recompute_full | v.recompute_selective
    left = np.where(again, 0.0, np.where(v.recompute_alternate, 0.5, 1.0)) * stage.layers
    copies = (left * local.layer + local.head) * casts
    made = np.where(again | v.recompute_alternate, np.minimum(stage.layers, 1.0) * local.layer * casts, 0.0)
    return np.where(copied, copies, resident), np.where(copied, made, running)


def _gradient_buffers(parameters: Floats, per: StateBytes, v: View, keeps: Keeps) -> Floats:
    """The gradients of ``parameters`` in the compute type, and in the type that they are reduced in: FSDP2 frees the input of one
    reduce-scatter before it makes that of the next (``FSDPParamGroup.post_backward``)."""
    if per.frozen:
        return np.zeros_like(v.tp)
    streamed = 2 * parameters * (per.gathered + v.reduce_bytes)
    copied = np.where(v.reduce_bytes > per.gathered, v.reduce_bytes, 0.0) if keeps.flat else v.reduce_bytes
    sharded = parameters * (per.gathered + copied)
    return np.where(v.streamed, streamed, np.where(v.ddp, parameters * per.gathered, sharded))


def _worst(instants: list[Parts]) -> Parts:
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
