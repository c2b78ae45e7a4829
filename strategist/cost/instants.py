"""What comes and goes on a device within a step, and gradients, at the instants that can be the worst."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strategist.contract.keeps import Keeps
from strategist.cost.held import Held, held_of
from strategist.cost.states import Stage, StateBytes
from strategist.cost.view import Floats, Mask, View
from strategist.cost.work import HeadWork, LayerWork

TRANSIENT = ("unsharded_parameters", "activations", "logits", "communication")
"""What comes and goes within a step."""

Parts = dict[str, Floats]


@dataclass(frozen=True, kw_only=True)
class Local:
    """Parameters of a stage as one rank sees them: its shard, one gathered layer, the gathered ends and of these the head."""

    shard: Floats
    layer: Floats
    ends: Floats
    head: Floats
    stage: Floats


def local_of(stage: Stage, head: HeadWork, v: View) -> Local:
    """Parameters are cut by tp and the FSDP group, those of a gathered layer by tp alone. Of a head that is streamed each device
    has its share of the turns, and then all of it."""
    layer = stage.gathered_layer(v)
    ends = stage.ends / v.tp
    last = np.ceil(stage.has_head) * head.matmul_flops / (2 * v.tokens)
    return Local(shard=stage.shard(v), layer=layer, ends=ends, head=last, stage=stage.layers * layer + ends)


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What the instants of a step depend on; ``gradients`` and ``optimizer`` are bytes that stay between the layers' turns,
    ``first_gradients`` those of the stage that goes back first where stages do one by one, else all."""

    stage: Stage
    local: Local
    per: StateBytes
    layer: LayerWork
    head: HeadWork
    v: View
    keeps: Keeps
    gradients: Floats
    first_gradients: Floats
    optimizer: Floats

    @cached_property
    def held(self) -> Held:
        return held_of(self.stage, self.layer, self.v, self.keeps)

    @cached_property
    def gathered(self) -> tuple[Floats, Floats]:
        """Parameters that stay through a micro-batch, and those of layers that come and go."""
        return _gathered(self.stage, self.local, self.per, self.v, self.keeps)

    @cached_property
    def left(self) -> tuple[Floats, Floats]:
        return _left_gathered(self.stage, self.local, self.per, self.v, self.keeps)

    @cached_property
    def ends(self) -> tuple[Floats, Floats, Floats]:
        return _ends(self.stage, self.local, self.per, self.v, self.keeps)

    @cached_property
    def has_head(self) -> Floats:
        return np.ceil(self.stage.has_head)

    @cached_property
    def several(self) -> Mask:
        """Whether gradients of earlier micro-batches may be there."""
        found: Mask = self.v.accumulation > 1
        return found

    @cached_property
    def fresh(self) -> Mask:
        """Whether nothing has gone back when all micro-batches in flight are held."""
        found: Mask = (self.v.pp > 1) & ~self.v.streamed & (self.stage.in_flight >= self.v.accumulation)
        return found

    @cached_property
    def at_last(self) -> Mask:
        """Whether gradients are reduced with the last of several micro-batches alone; earlier ones add up what they made."""
        found: Mask = self.v.postponed & self.several & ~self.v.ddp & ~self.v.streamed & (self.keeps.parameters == "shards")
        return found

    @cached_property
    def always(self) -> Mask:
        """Whether gradients lie in buckets, which are there all the time."""
        found: Mask = (self.v.ddp & (self.v.dp_replicate > 1)) | (self.keeps.parameters == "copies")
        return found

    @cached_property
    def unsummed(self) -> Floats:
        return _unsummed(self.stage, self.local, self.per, self.v)

    @cached_property
    def early(self) -> Floats:
        """Gradients that are there before the layers go back."""
        return np.where((self.several & ~self.fresh) | self.always, self.first_gradients, 0.0) + self.unsummed

    @cached_property
    def waiting_loss(self) -> Floats:
        """What a loss keeps until its micro-batch goes back."""
        return self.head.kept_bytes + self.head.input_bytes

    @cached_property
    def linger(self) -> Floats:
        """Logits beside those of the micro-batch at work."""
        lingering = np.where(self.several, self.head.lingering_bytes, 0.0)
        return self.has_head * (lingering + (self.stage.losses_in_flight - 1) * self.waiting_loss)


def worst_instant(rank: Rank, factor: float) -> Parts:
    """The parts of each candidate's fullest instant, what comes and goes times ``factor``.

    Of a stage's micro-batches in flight all hold every layer until the first of them has gone back through it.
    """
    instants = [*_forward(rank), *_losses(rank), *_turns(rank), *_update(rank)]
    if factor != 1.0:
        instants = [{name: part * (factor if name in TRANSIENT else 1.0) for name, part in one.items()} for one in instants]
    return _worst(instants, np.zeros_like(rank.v.tp))


def _forward(r: Rank) -> list[Parts]:
    """As the first layer runs, and at the end of the forward pass, where all copies live that autocast has made."""
    v, (gathering, _, _) = r.v, r.ends
    cast = np.where(v.autocast, (r.stage.layers * r.local.layer + r.local.head) * r.per.gathered, 0.0)
    logits = r.linger + r.has_head * r.head.computed_bytes
    return [
        _instant(v, gradients=np.where(v.pp > 1, 0.0, r.early), unsharded=gathering),
        _instant(v, gradients=r.early, unsharded=cast, activations=r.held.saved, logits=logits),
    ]


def _losses(r: Rank) -> list[Parts]:
    """At the first loss, and at that of the second micro-batch, where all have gone forward and the first has gone back."""
    (resident, _), (beside, after) = r.gathered, r.left
    lasting = np.where(r.stage.losses_in_flight > 1, r.first_gradients, 0.0)
    next_linger = r.linger - r.has_head * np.minimum(r.stage.losses_in_flight - 1, 1.0) * r.waiting_loss
    return [
        _instant(
            r.v,
            gradients=gradients,
            unsharded=unsharded,
            activations=activations + r.has_head * r.head.input_bytes,
            logits=r.has_head * r.head.logit_bytes + logits,
        )
        for gradients, unsharded, activations, logits in (
            (r.early, resident + beside, r.held.saved, r.linger),
            (lasting, np.maximum(resident, after), r.held.saved - r.held.batch, next_linger),
        )
    ]


def _turns(r: Rank) -> list[Parts]:
    """As the last layer, the one before it and the first one go back, and at last what a stage makes again for each weight.

    A layer goes back in two turns: when its feed-forward begins all that it keeps is there, and the buffer in which the layer
    before it is reduced, but for the last one; when only attention is left, so are its gradients. Where only the last
    micro-batch is reduced, no others are held then; so of stages one by one, what the last of them has as it begins with its second
    micro-batch takes the place of the layer before the last. Of micro-batches that all went forward first, the second one finds
    all that the first left.
    """
    v, held, layer = r.v, r.held, r.layer
    (resident, running), (beside, after), (_, head_gradient, _) = r.gathered, r.left, r.ends
    weights = np.zeros_like(v.tp) if r.per.frozen else r.local.layer * r.per.gathered
    moving = _gradient_buffers(r.local.layer, r.per, v, r.keeps)
    reducing = np.maximum(moving - weights, 0.0)
    begins = layer.again_bytes + layer.backward_bytes
    last_begins = np.where(v.recompute_alternate & (r.stage.again < 1), layer.backward_bytes, begins)
    two = np.minimum(r.stage.layers, 2.0) - 1
    above, below = resident + running + beside, np.maximum(resident + running, after)
    at_last = r.at_last & (r.stage.in_flight > 1)
    second_last = held.saved - held.last - held.layer * two + layer.attention_bytes
    second_last = second_last - np.where(at_last, (r.stage.in_flight - 1) * held.batch, 0.0)
    early_reducing, partly_moving = np.where(r.at_last, 0.0, reducing), np.where(r.at_last, weights, moving)
    partly, fewer = _at_first_layer(r)
    apart = np.where(v.zero_bubble, r.has_head * r.head.computed_bytes, 0.0)  # until the head's own gradient is made
    before_last = [r.early, above, held.saved - held.last * two + begins, early_reducing * two]
    alone = v.one_by_one & r.at_last
    if alone.any():
        parts = (r.gradients, below, held.alone + begins, early_reducing)
        before_last = [np.where(alone, part, other) for part, other in zip(parts, before_last, strict=True)]
    turns: list[tuple[Floats, Floats, Floats, Floats | None]] = [
        (r.early, above, held.saved + last_begins, None),
        (before_last[0], before_last[1], before_last[2], before_last[3]),
        (
            np.where(at_last, r.gradients, r.early),
            np.where(at_last, below, above),
            second_last,
            np.where(r.at_last, reducing, moving),
        ),
        (partly, below, held.others - fewer + begins, early_reducing),
        (partly, below, held.others - held.first + layer.attention_bytes, partly_moving),
    ]
    if v.zero_bubble.any():
        turns.append((partly, below, held.others + held.remade + layer.backward_bytes, None))
    logits = r.linger + apart
    return [
        _instant(
            v,
            gradients=gradients,
            unsharded=unsharded,
            activations=activations,
            logits=logits,
            communication=head_gradient if buffers is None else buffers + head_gradient,
        )
        for gradients, unsharded, activations, buffers in turns
    ]


def _at_first_layer(r: Rank) -> tuple[Floats, Floats]:
    """Gradients as the first layer goes back, where none of an earlier micro-batch are there all but its own and those of the ends.
    Where a second micro-batch is to come, these weigh against what the first layer and its stage's output keep, which are gone when
    that begins: both as they are then, if that is more."""
    own = r.first_gradients * (r.local.ends + r.local.layer) / r.local.stage
    kept = r.held.first + r.held.output
    second = r.fresh & r.several & (own > kept)
    there = np.where(r.always | (r.several & ~r.fresh) | second, r.first_gradients, r.first_gradients - own)
    return there + r.keeps.piled_gradient_bytes * r.local.stage + r.unsummed, np.where(second, kept, 0.0)


def _update(r: Rank) -> list[Parts]:
    """As the embedding goes back, as embedding and head are reduced, and at the optimizer's step."""
    v, (_, _, at_last) = r.v, r.ends
    reduced = np.where(r.several, r.gradients, r.gradients * (1 - r.local.ends / r.local.stage))
    ending = np.where(v.ddp | v.streamed | v.postponed, 0.0, _gradient_buffers(r.local.ends, r.per, v, r.keeps))
    unsharded = np.where(at_last > 0, r.local.ends * r.per.gathered, 0.0)
    return [
        _instant(v, gradients=reduced, unsharded=unsharded, logits=r.linger, communication=at_last),
        _instant(v, gradients=reduced, logits=r.linger, communication=ending),
        _instant(v, gradients=r.gradients + (0.5 * r.optimizer if r.keeps.foreach else 0.0)),
    ]


def _left_gathered(stage: Stage, local: Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats]:
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


def _unsummed(stage: Stage, local: Local, per: StateBytes, v: View) -> Floats:
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
    unsharded: Floats | None = None,
    activations: Floats | None = None,
    logits: Floats | None = None,
    communication: Floats | None = None,
) -> Parts:
    """Without the parts that nobody has then."""
    parts = {
        "gradients": gradients,
        "unsharded_parameters": unsharded,
        "activations": activations,
        "logits": logits,
        "communication": communication,
    }
    return {name: np.broadcast_to(part, v.tp.shape) for name, part in parts.items() if part is not None}


def _gathered(stage: Stage, local: Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats]:
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


def _ends(stage: Stage, local: Local, per: StateBytes, v: View, keeps: Keeps) -> tuple[Floats, Floats, Floats]:
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


def _worst(instants: list[Parts], zero: Floats) -> Parts:
    """The parts of each candidate's fullest instant, the first of equals."""
    most = sum(instants[0].values(), start=zero)
    fullest = np.zeros(zero.shape, dtype=np.int8)
    for number, instant in enumerate(instants[1:], start=1):
        first, *others = instant.values()
        total = sum(others, start=first)
        higher = total > most
        np.copyto(fullest, number, where=higher)
        np.copyto(most, total, where=higher)
    parts = {name: zero.copy() for name in ("gradients", *TRANSIENT)}
    for number, instant in enumerate(instants):
        here = fullest == number
        if here.any():
            for name, part in instant.items():
                np.copyto(parts[name], part, where=here)
    return parts
