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

    Of a stage's micro-batches in flight all hold every layer until the first of them has gone back through it. A layer goes back in
    two turns: when its feed-forward begins all that it keeps is there, and the buffer in which the layer before it is reduced, but
    for the last one; when only attention is left, so are its gradients.
    """
    zero = np.zeros_like(v.tp)
    has_head, several = np.ceil(stage.has_head), v.accumulation > 1
    resident, running = _gathered(stage, local, per, v, keeps)
    beside, after = _left_gathered(stage, local, per, v, keeps)
    moving, ending = (_gradient_buffers(size, per, v, keeps) for size in (local.layer, local.ends))
    gathering, head_gradient, embedding_gradients = _ends(stage, local, per, v, keeps)
    held = _held(stage, layer, v, keeps)
    waiting = head.kept_bytes + head.input_bytes
    linger = has_head * (np.where(several, head.lingering_bytes, 0.0) + (stage.losses_in_flight - 1) * waiting)
    apart = np.where(v.zero_bubble, has_head * head.computed_bytes, 0.0)  # until the head's own gradient is made
    always = v.ddp | (keeps.parameters == "copies")  # buckets; else gradients of earlier micro-batches
    before = several & (stage.losses_in_flight == 1)
    unsummed = _unsummed(stage, local, per, v)
    early = np.where(before | always, gradients, 0.0) + unsummed
    cast = np.where(v.autocast, (stage.layers * local.layer + local.head) * per.gathered, 0.0)
    forward = [
        _instant(v, gradients=np.where(v.pp > 1, 0.0, early), unsharded=gathering),
        _instant(v, gradients=early, unsharded=cast, activations=held.saved, logits=linger + has_head * head.computed_bytes),
    ]
    losses = [
        _instant(
            v,
            gradients=there,
            unsharded=whole,
            activations=activations + layer.gathered_bytes + has_head * head.input_bytes,
            logits=has_head * head.logit_bytes + logits,
        )
        for there, whole, activations, logits in (
            (early, resident + beside, held.saved, linger),
            # that of the second micro-batch, where all have gone forward and the first has gone back
            (
                np.where(stage.losses_in_flight > 1, gradients, 0.0),
                np.maximum(resident, after),
                held.saved - held.batch,
                linger - has_head * np.minimum(stage.losses_in_flight - 1, 1.0) * waiting,
            ),
        )
    ]
    partly = np.where(always | several, gradients, gradients * (1 - (local.ends + local.layer) / local.stage))
    partly = partly + keeps.piled_gradient_bytes * local.stage + unsummed
    reducing = np.maximum(moving - local.layer * per.gathered, 0.0)
    two = np.minimum(stage.layers, 2.0) - 1
    begins = layer.again_bytes + layer.backward_bytes
    last_begins = np.where(v.recompute_alternate & (stage.again < 1), layer.backward_bytes, begins)
    gathered = resident + running
    above, below = gathered + beside, np.maximum(gathered, after)
    turns = [
        _instant(
            v,
            gradients=there,
            unsharded=whole,
            activations=activations + layer.gathered_bytes,
            logits=linger + apart,
            communication=buffers + head_gradient,
        )
        for there, whole, activations, buffers in (
            (early, above, held.saved + last_begins, zero),
            (early, above, held.saved - held.last * two + begins, reducing * two),
            (early, above, held.saved - held.last - held.layer * two + layer.attention_bytes, moving),
            (partly, below, held.others + begins, reducing),
            (partly, below, held.others - held.first + layer.attention_bytes, moving),
            (partly, below, held.others + held.remade + layer.backward_bytes, zero),
        )
    ]
    reduced = np.where(several, gradients, gradients * (1 - local.ends / local.stage))
    update = [
        _instant(
            v,
            gradients=reduced,
            unsharded=np.where(embedding_gradients > 0, local.ends * per.gathered, 0.0),
            logits=linger,
            communication=embedding_gradients,
        ),
        _instant(v, gradients=reduced, logits=linger, communication=np.where(v.ddp | v.streamed | v.postponed, 0.0, ending)),
        _instant(v, gradients=gradients + (0.5 * optimizer if keeps.foreach else 0.0)),
    ]
    return [*forward, *losses, *turns, *update]


@dataclass(frozen=True, kw_only=True)
class _Held:
    """Bytes of activations: ``saved`` of all micro-batches in flight, ``batch`` of one, ``others`` once one of them has gone back
    to the first layer; of a ``layer`` on average, of the ``last`` and the ``first`` one where they differ. ``remade`` is what
    stays of one stage where each weight's gradient makes it again."""

    saved: Floats
    batch: Floats
    others: Floats
    layer: Floats
    last: Floats
    first: Floats
    remade: Floats


def _held(stage: Stage, layer: LayerWork, v: View, keeps: Keeps) -> _Held:
    """Of a pipeline's stages torch keeps the outputs, too, until their gradients come (``PipelineStage.fwd_cache``), and where a
    rank has several in turn an input and a gradient arrive ahead."""
    each = np.where(
        v.recompute_alternate, layer.kept_bytes - stage.again * (layer.kept_bytes - layer.input_bytes), layer.saved_bytes
    )
    whole = stage.layers * each
    saved = _here(stage.in_flight * whole, layer, v)
    passed = stage.outputs + np.where(v.looped, 2.0, 0.0) if keeps.holds_outputs else np.zeros_like(v.tp)
    passed = np.where(v.streamed, 0.0, passed * layer.input_bytes)
    first = np.minimum(whole, np.where(v.recompute_alternate, layer.input_bytes, layer.saved_bytes))
    last = np.minimum(whole, np.where(v.recompute_alternate & (stage.again < 1), layer.kept_bytes, layer.saved_bytes))
    others = np.where(v.activations_away, saved, saved - whole + first)
    again = np.where(v.recompute_alternate, stage.again, 1.0) * stage.layers / v.virtual_stages
    return _Held(
        saved=saved + passed,
        batch=np.where(v.activations_away, 0.0, whole),
        others=others + passed,
        layer=np.where(v.activations_away, 0.0, each),
        last=np.where(v.activations_away, 0.0, last),
        first=np.where(v.activations_away, 0.0, first),
        remade=np.where(layer.remade_bytes > 0, again * (layer.again_bytes + layer.remade_bytes), 0.0),
    )


def _left_gathered(stage: Stage, local: _Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats]:
    """Of a pipeline's stages torch reshards nothing after a backward pass but the last, only what the next forward pass has been
    through (``stage.backward_maybe_with_nosync``), and keeps three stages at a time. So at the loss those that last went back lie
    beside, of stages in turn half of the others; and after a backward pass all of them."""
    if keeps.parameters != "shards":
        return np.zeros_like(v.tp), np.zeros_like(v.tp)
    kept = (v.pp > 1) & (v.accumulation > 1) & ~v.ddp & ~v.streamed
    each = stage.layers / v.virtual_stages * local.layer * per.gathered
    beside = np.where(v.looped & v.reshard & ~v.one_by_one, np.minimum(np.floor(v.virtual_stages / 2), 2.0) * each, 0.0)
    after = local.ends * per.gathered + np.where(v.one_by_one, 1.0, np.minimum(v.virtual_stages, 3.0)) * each
    return np.where(kept, beside, 0.0), np.where(kept, after, 0.0)


def _unsummed(stage: Stage, local: _Local, per: StateBytes, v: View) -> Floats:
    """Where gradients of weights are a pass of their own, FSDP2 adds them to those of earlier micro-batches only in the stage's
    next pass; until then they wait in the type that they are computed in."""
    if per.frozen:
        return np.zeros_like(v.tp)
    wait = v.zero_bubble & (v.reduce_bytes > per.gathered) & ~v.ddp
    return np.where(wait, (stage.apart * stage.layers * local.layer + local.head) * per.gathered, 0.0)


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
    alone = np.where(v.one_by_one, 1 / v.virtual_stages, 1.0) if keeps.parameters == "shards" else np.ones_like(v.tp)
    whole = alone * whole + (1 - alone) * trained * per.gradient
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
    left = np.where(again, 0.0, np.where(v.recompute_alternate, 1 - stage.again, 1.0)) * stage.layers
    copies = (left * local.layer + local.head) * casts
    made = np.where(again | v.recompute_alternate, np.minimum(stage.layers, 1.0) * local.layer * casts, 0.0)
    return np.where(copied, copies, resident), np.where(copied, made, running)


def _ends(stage: Stage, local: _Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats, Floats]:
    """What FSDP2 does with embedding and head, which it gathers and reduces together (``FSDPParamGroup``).

    As the first layer runs: the ends and the layer, each beside the buffer that it was gathered into. While layers go back: the
    gradient of the head, which waits for that of the embedding; where micro-batches add up in the same type it is counted with
    them. At last: the gradients of both, of tied ends their sum, too, beside the buffer of the last layer's reduction.
    """
    alone = ~v.ddp & ~v.streamed & ((keeps.parameters == "shards") & keeps.holds_ends)
    gathering = np.where(alone, 2 * (local.ends + local.layer) * per.gathered, 0.0)
    if per.frozen:
        return gathering, np.zeros_like(v.tp), np.zeros_like(v.tp)
    together = v.postponed & (v.accumulation > 1)
    head = np.where(alone & ~(together & (v.reduce_bytes <= per.gathered)), local.head * per.gathered, 0.0)
    both = (local.ends + 2 * stage.tied / v.tp) * per.gathered + np.where(together, 0.0, local.layer * v.reduce_bytes)
    return gathering, head, np.where(alone & (v.pp == 1), both, 0.0)


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
