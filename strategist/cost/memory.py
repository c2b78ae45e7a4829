"""Memory of the fullest device at the worst instant of a step, and of the hosts."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.cost.states import Stage, StateBytes
from strategist.cost.view import Floats, View
from strategist.cost.work import HeadWork, LayerWork

PARTS = (
    "parameters", "unsharded_parameters", "gradients", "optimizer", "activations", "logits", "communication", "allocator",
)  # fmt: skip

TRANSIENT = ("unsharded_parameters", "activations", "logits", "communication")
"""What comes and goes within a step."""

Parts = dict[str, Floats]


@dataclass(frozen=True, kw_only=True)
class _Local:
    """Parameters of a stage as one rank sees them: its shard, one gathered layer, and the gathered ends."""

    shard: Floats
    layer: Floats
    ends: Floats
    stage: Floats


def _local(stage: Stage, v: View) -> _Local:
    """All parameters are cut by tp and the FSDP group (experts by ep and etp instead, in the end as finely); a gathered layer by
    tp, its experts by ep and etp."""
    shard = stage.parameters / (v.fsdp_ranks * v.tp)
    layer = stage.gathered_layer(v)
    ends = stage.ends / v.tp
    return _Local(shard=shard, layer=layer, ends=ends, stage=stage.layers * layer + ends)


def device_memory(stage: Stage, per: StateBytes, layer: LayerWork, head: HeadWork, v: View, slack: float, factor: float) -> Parts:
    """Bytes by part at the worst of four instants: loss, first and last layer of the backward pass, optimizer step.

    ``slack`` is the allocator's share of what comes and goes, ``factor`` a calibration of that.
    """
    local = _local(stage, v)
    parameters, gradients, optimizer = _states(stage, local, per, v)
    gathered = _gathered(stage, local, per, v)
    moving = _gradient_buffers(local, per, v)
    kept = layer.saved_bytes
    saved = stage.in_flight * stage.layers * kept
    again = layer.again_bytes + layer.backward_bytes
    logits = np.ceil(stage.has_head) * head.logit_bytes
    early = np.where((v.accumulation > 1) | v.ddp, gradients, 0.0)  # DDP's buckets and earlier micro-batches
    zero = np.zeros_like(saved)
    gathered, moving, saved, again, kept, logits = (factor * part for part in (gathered, moving, saved, again, kept, logits))
    instants = (
        {"gradients": early, "unsharded_parameters": gathered, "activations": saved, "logits": logits, "communication": zero},
        {
            "gradients": early,
            "unsharded_parameters": gathered,
            "activations": saved + again,
            "logits": zero,
            "communication": moving,
        },
        {
            "gradients": gradients,
            "unsharded_parameters": gathered,
            "activations": stage.in_flight * kept + again,
            "logits": zero,
            "communication": moving,
        },
        {"gradients": gradients, "unsharded_parameters": zero, "activations": zero, "logits": zero, "communication": zero},
    )
    worst = _worst(instants)
    reserved: Floats = slack * sum((worst[name] for name in TRANSIENT), start=zero)
    return {"parameters": parameters, "optimizer": optimizer, "allocator": reserved, **worst}


def _states(stage: Stage, local: _Local, per: StateBytes, v: View) -> tuple[Floats, Floats, Floats]:
    """Parameters, gradients and optimizer states that stay on the device between the layers' turns."""
    on_host = v.offload_all | v.streamed
    cut = v.fsdp_ranks * v.tp
    stored = (stage.layers * (stage.dense + stage.expert) * per.stored + stage.ends * per.embedding) / cut
    trained = local.shard * (per.trained if per.frozen else 1.0)
    adapters = trained * (4.0 if per.frozen else 0.0)
    # Postponed gradients wait unsharded; reduced ones lie beside them only layer by layer.
    fsdp = (~v.ddp & (v.fsdp_ranks * v.dp_replicate > 1)) | v.offload_all
    waiting = v.postponed & (v.accumulation > 1) & fsdp
    whole = local.stage * v.reduce_bytes * (per.trained if per.frozen else 1.0)
    gradients = np.where(waiting, whole, np.where(on_host, 0.0, trained * per.gradient))
    gradients = np.where(v.update_at_once, gradients / np.maximum(stage.layers, 1.0), gradients)
    gradients = gradients + np.where(v.low_rank_hook, local.stage * 4.0, 0.0)  # PowerSGD remembers what it left out
    optimizer = np.where(on_host | v.offload_optimizer, 0.0, trained * per.optimizer)
    return np.where(on_host, 0.0, stored + adapters), gradients, optimizer


def _gathered(stage: Stage, local: _Local, per: StateBytes, v: View) -> Floats:
    """Parameters in the compute type: two layers (this and the prefetched one) and the ends, or whatever is not resharded.

    DDP computes in copies that autocast keeps from forward to backward; in fp32 it needs none.
    """
    two_layers = np.minimum(stage.layers, 2.0) * local.layer
    subgroup = (local.stage - local.ends) / np.maximum(v.reshard_group, 1.0) + two_layers
    layers = np.where(v.reshard, two_layers, np.where(v.reshard_subgroup, subgroup, local.stage - local.ends))
    layers = np.where(v.streamed, two_layers, layers)
    ends = np.where(v.streamed, v.pp * local.ends, local.ends)  # of all that are dealt out, those on one device
    copies = local.stage * (per.gathered if per.gathered < 4.0 and not per.frozen else 0.0)
    return np.where(v.ddp & ~v.streamed & ~v.offload_all, copies, (layers + ends) * per.gathered)


def _gradient_buffers(local: _Local, per: StateBytes, v: View) -> Floats:
    """One layer's gradients in the compute type and two in flight in the type they are reduced in."""
    if per.frozen:
        return np.zeros_like(v.tp)
    streamed = 2 * local.layer * (per.gathered + v.reduce_bytes)
    sharded = local.layer * (per.gathered + 2 * v.reduce_bytes)
    return np.where(v.streamed, streamed, np.where(v.ddp, local.layer * per.gathered, sharded))


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
