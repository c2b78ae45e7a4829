"""Unsharded memory: gathered parameters, and gradients before they are reduced."""

import numpy as np

from strategist.cost.candidate_arrays import Floats
from strategist.cost.kept_memory import stored_copies
from strategist.cost.memory_context import LocalParameters, MemoryContext
from strategist.cost.model_states import Stage


def gathered_parameters(stage: Stage, local: LocalParameters, c: MemoryContext) -> tuple[Floats, Floats]:
    """Bytes of gathered parameters in the compute type: those resident through a micro-batch (embedding and head, and layers that
    are not resharded; of a streamed root only the head), and those of layers in transit (the current and the prefetched one).

    Some frameworks compute with whole copies, of which a rank keeps its shard if they are sharded (ZeRO-3). Autocast copies the
    inputs of matmuls, so not the embedding, and autograd keeps these copies for the backward pass; a recomputed layer casts again.
    In fp32 there are no copies.
    """
    per, v = c.per, c.v
    two_layers = np.minimum(stage.layers, 2.0) * local.layer
    subgroup = (local.stage - local.root) / np.maximum(v.reshard_group, 1.0)
    unresharded = np.where(v.reshard | v.streamed, 0.0, np.where(v.reshard_subgroup, subgroup, local.stage - local.root))
    root = np.where(v.streamed, local.head, _held_root(local, c))
    in_transit = v.frees_parameters | v.streamed
    each = np.where(v.float8, 1.0, per.gathered) if c.traits.float8_parameters else per.gathered_layer
    resident, transit = unresharded * each + root * per.gathered, np.where(in_transit, two_layers * each, 0.0)
    casts = c.compute_bytes if c.compute_bytes < per.stored and not per.frozen else 0.0
    if c.traits.parameters == "copies":
        copied = (v.fsdp_ranks == 1) & ~v.streamed & ~v.offload_all | c.frozen_whole
        own_shard = np.where(v.frees_parameters, stored_copies(local, c), 0.0)
        return np.where(copied, local.stage * casts, resident + own_shard), np.where(copied, 0.0, transit)
    copied = v.ddp & ~v.streamed & ~v.offload_all | c.frozen_whole
    recomputes = v.recompute_full | v.recompute_selective
    saved_layers = np.where(recomputes, 0.0, np.where(v.recompute_every_second, 1 - stage.recomputed_share, 1.0)) * stage.layers
    copies = (saved_layers * local.layer + local.head) * casts
    if c.traits.float8_parameters:
        copies = copies + np.where(v.float8, (local.stage - local.root) * 1.0, 0.0)
    recomputed_copies = np.where(recomputes | v.recompute_every_second, np.minimum(stage.layers, 1.0) * local.layer * casts, 0.0)
    if c.traits.autocast:
        resident, transit = resident + copies, transit + recomputed_copies
    return np.where(copied, copies, resident), np.where(copied, recomputed_copies, transit)


def _held_root(local: LocalParameters, c: MemoryContext) -> Floats:
    """Parameters of embedding and head that stay gathered between forward and backward pass."""
    return {"both": local.root, "head": local.head, "neither": np.zeros_like(local.root)}[c.traits.root]


def unresharded_stages(stage: Stage, local: LocalParameters, c: MemoryContext) -> tuple[Floats, Floats]:
    """Bytes of gathered parameters that other stages of a rank leave gathered: at the loss, and after a backward pass.

    After a backward pass torch reshards nothing but the last stage, and otherwise only what the next forward pass has used
    (``stage.backward_maybe_with_nosync``); three stages stay gathered at a time. At the loss the stages whose backward pass ran
    last are gathered: half of the others if stages alternate.
    """
    v, gathered = c.v, c.per.gathered
    if c.traits.parameters != "shards":
        return np.zeros_like(v.tp), np.zeros_like(v.tp)
    stays_gathered = (v.pp > 1) & (v.accumulation > 1) & ~v.ddp & ~v.streamed
    each = stage.layers / v.virtual_stages * local.layer * c.per.gathered_layer
    at_loss = np.where(v.looped & v.reshard & ~v.sequential_backward, np.minimum(np.floor(v.virtual_stages / 2), 2.0) * each, 0.0)
    after_backward = local.root * gathered + np.where(v.sequential_backward, 1.0, np.minimum(v.virtual_stages, 3.0)) * each
    return np.where(stays_gathered, at_loss, 0.0), np.where(stays_gathered, after_backward, 0.0)


def root_memory(stage: Stage, local: LocalParameters, c: MemoryContext) -> tuple[Floats, Floats, Floats]:
    """Bytes of embedding and head, which FSDP2 gathers and reduces together (``FSDPParamGroup``), at three instants.

    First layer's forward pass: root and layer, each with the buffer that it was gathered into. Backward passes of layers: the
    gradient of the head, which waits for that of the embedding; it is counted with the accumulated gradients if these have
    the same type. End: the gradients of both, for tied ones also their sum, and the buffer of the last layer's reduction.
    """
    per, v, traits = c.per, c.v, c.traits
    fsdp = ~v.ddp & ~v.streamed & ((traits.parameters == "shards") & (traits.root == "both"))
    gathering = np.where(fsdp, 2 * (local.root * per.gathered + local.layer * per.gathered_layer), 0.0)
    if per.frozen:
        return np.where(c.frozen_whole, 0.0, gathering), np.zeros_like(v.tp), np.zeros_like(v.tp)
    accumulates = v.no_sync & (v.accumulation > 1)
    head = np.where(fsdp & ~(accumulates & (v.reduce_bytes <= per.gathered)), local.head * per.gathered, 0.0)
    both = (local.root + 2 * stage.tied / v.tp) * per.gathered + np.where(accumulates, 0.0, local.layer * v.reduce_bytes)
    return gathering, head, np.where(fsdp & (v.pp == 1), both, 0.0)


def gradient_buffers(parameters: Floats, c: MemoryContext) -> Floats:
    """Bytes of the gradients of ``parameters`` in the compute type and in the type of the reduction. FSDP2 frees the input of
    one reduce-scatter before it allocates the next (``FSDPParamGroup.post_backward``).
    """
    per, v = c.per, c.v
    if per.frozen:
        return np.zeros_like(v.tp)
    streamed = 2 * parameters * (per.gathered + v.reduce_bytes)
    copied = np.where(v.reduce_bytes > per.gathered, v.reduce_bytes, 0.0) if c.traits.flat else v.reduce_bytes
    sharded = parameters * (per.gathered + copied)
    return np.where(v.streamed, streamed, np.where(v.ddp, parameters * per.gathered, sharded))


def unsummed_gradients(stage: Stage, local: LocalParameters, c: MemoryContext) -> Floats:
    """Bytes of weight gradients that a separate pass computed (zero-bubble schedules) and FSDP2 has not added to those of
    earlier micro-batches yet; it does so in the stage's next pass.
    """
    per, v = c.per, c.v
    if per.frozen:
        return np.zeros_like(v.tp)
    wait = v.zero_bubble & (v.reduce_bytes > per.gathered) & ~v.ddp
    return np.where(wait, (stage.weight_pass_share * stage.layers * local.layer + local.head) * per.gathered, 0.0)


def last_gather(stage: Stage, local: LocalParameters, c: MemoryContext) -> Floats:
    """Bytes of the buffer of the last layer's all-gather during a chunked loss: FSDP2 frees it with the next all-gather."""
    sharded = c.v.chunked_loss & ~c.v.ddp & ~c.v.streamed & (c.traits.parameters == "shards")
    return np.where(sharded, np.minimum(stage.layers, 1.0) * local.layer * c.per.gathered_layer, 0.0)
