"""Memory of a pipeline stage at each candidate peak of a step, one function a peak; the largest is the stage's peak."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strategist.contract.memory_traits import MemoryTraits
from strategist.cost.activation_memory import StageActivations, stage_activations
from strategist.cost.candidate_arrays import Floats, Mask, Parts, View
from strategist.cost.memory_context import LocalParameters, MemoryContext, local_parameters
from strategist.cost.model_states import Stage
from strategist.cost.unsharded_memory import (
    gathered_parameters,
    gradient_buffers,
    root_memory,
    unresharded_stages,
    unsummed_gradients,
)

TRANSIENT = ("unsharded_parameters", "activations", "logits", "communication")
"""Parts of memory that are allocated and freed within a step."""


@dataclass(frozen=True, kw_only=True)
class StageTimeline:
    """One stage through a step. ``gradients`` and ``optimizer`` are bytes that stay between the layers' turns; ``first_gradients``
    those of the first stage to run its backward pass where a rank's stages run one by one, else all gradients."""

    stage: Stage
    context: MemoryContext
    gradients: Floats
    first_gradients: Floats
    optimizer: Floats

    @property
    def v(self) -> View:
        return self.context.v

    @property
    def traits(self) -> MemoryTraits:
        return self.context.traits

    @cached_property
    def local(self) -> LocalParameters:
        return local_parameters(self.stage, self.context)

    @cached_property
    def activations(self) -> StageActivations:
        return stage_activations(self.stage, self.context.layer, self.v, self.traits)

    @cached_property
    def gathered(self) -> tuple[Floats, Floats]:
        """Unsharded parameters that stay through a micro-batch, and those of layers that come and go."""
        return gathered_parameters(self.stage, self.local, self.context)

    @cached_property
    def in_backward(self) -> tuple[Floats, Floats]:
        """Unsharded parameters as the last layer goes back, and once a micro-batch has gone back to the first."""
        (resident, running), (beside, after) = self.gathered, self.unresharded
        return resident + running + beside, np.maximum(resident + running, after)

    @cached_property
    def unresharded(self) -> tuple[Floats, Floats]:
        return unresharded_stages(self.stage, self.local, self.context)

    @cached_property
    def root(self) -> tuple[Floats, Floats, Floats]:
        """Embedding and head: as they are gathered, the waiting gradient of the head, and the gradients of both."""
        return root_memory(self.stage, self.local, self.context)

    @cached_property
    def has_head(self) -> Floats:
        return np.ceil(self.stage.has_head)

    @cached_property
    def several(self) -> Mask:
        """Gradients of earlier micro-batches may be there."""
        mask: Mask = self.v.accumulation > 1
        return mask

    @cached_property
    def fresh(self) -> Mask:
        """No micro-batch has gone back when all those in flight are held."""
        mask: Mask = (self.v.pp > 1) & ~self.v.streamed & (self.stage.in_flight >= self.v.accumulation)
        return mask

    @cached_property
    def reduced_last(self) -> Mask:
        """Gradients are reduced with the last of several micro-batches alone; earlier ones add up what they made."""
        mask: Mask = self.v.no_sync & self.several & ~self.v.ddp & ~self.v.streamed & (self.traits.parameters == "shards")
        return mask

    @cached_property
    def in_buckets(self) -> Mask:
        """Gradients lie in buckets, which are there all the time."""
        mask: Mask = (self.v.ddp & (self.v.dp_replicate > 1)) | (self.traits.parameters == "copies")
        return mask

    @cached_property
    def unsummed(self) -> Floats:
        return unsummed_gradients(self.stage, self.local, self.context)

    @cached_property
    def early_gradients(self) -> Floats:
        """Gradients that are there before the layers go back."""
        return np.where((self.several & ~self.fresh) | self.in_buckets, self.first_gradients, 0.0) + self.unsummed

    @cached_property
    def streamed_head(self) -> tuple[Floats, Floats]:
        """Beside a streamed head: the sums of its gradients over earlier micro-batches, and the layer that is copied meanwhile."""
        v, per = self.v, self.context.per
        trained = 0.0 if per.frozen else self.has_head * self.local.head * v.reduce_bytes
        return np.where(v.streamed & self.several, trained, 0.0), np.where(v.streamed, self.gathered[1] / 2, 0.0)

    @cached_property
    def waiting_loss(self) -> Floats:
        """What a loss saves until its micro-batch goes back."""
        return self.context.loss.saved_bytes + self.context.loss.input_bytes

    @cached_property
    def lingering(self) -> Floats:
        """Logits beside those of the micro-batch at work."""
        left = np.where(self.several, self.context.loss.lingering_bytes, 0.0)
        return self.has_head * (left + (self.stage.losses_in_flight - 1) * self.waiting_loss)

    @cached_property
    def layer_gradients(self) -> Floats:
        """A layer's gradients in the compute type, with the buffer that they are reduced in."""
        return gradient_buffers(self.local.layer, self.context)

    @cached_property
    def layer_weights(self) -> Floats:
        """A layer's gradients in the compute type."""
        return np.zeros_like(self.v.tp) if self.context.per.frozen else self.local.layer * self.context.per.gathered

    @cached_property
    def reduction(self) -> Floats:
        """The buffer in which a layer's gradients are reduced."""
        return np.maximum(self.layer_gradients - self.layer_weights, 0.0)

    @cached_property
    def layer_backward(self) -> Floats:
        """What a layer makes again, and the gradients as its feed-forward begins its backward pass."""
        layer = self.context.layer
        return layer.recomputed_bytes + layer.feed_forward_backward_bytes

    @cached_property
    def at_first_layer(self) -> tuple[Floats, Floats]:
        """Gradients as the first layer goes back, where none of an earlier micro-batch are there all but its own and the root's.
        Where a second micro-batch is to come, these weigh against what the first layer and its stage's output save, which are gone
        when that begins: both as they are then, if that is more."""
        own = self.first_gradients * (self.local.root + self.local.layer) / np.maximum(self.local.stage, 1.0)
        kept = self.activations.first_layer_bytes + self.activations.output_bytes
        second = self.fresh & self.several & (own > kept)
        all_there = self.in_buckets | (self.several & ~self.fresh) | second
        there = np.where(all_there, self.first_gradients, self.first_gradients - own)
        return there + self.traits.piled_gradient_bytes * self.local.stage + self.unsummed, np.where(second, kept, 0.0)


def first_layer_forward(t: StageTimeline) -> Parts:
    """The first layer runs: root and layer beside the buffers that they were gathered into."""
    return _parts(t, gradients=np.where(t.v.pp > 1, 0.0, t.early_gradients), unsharded=t.root[0])


def forward_end(t: StageTimeline) -> Parts:
    """The forward pass ends: all activations in flight, the logits, and all copies that autocast has made."""
    local = t.local
    cast = np.where(t.v.autocast, (t.stage.layers * local.layer + local.head) * t.context.compute_bytes, 0.0)
    logits = t.lingering + t.has_head * t.context.loss.projected_bytes
    return _parts(t, gradients=t.early_gradients, unsharded=cast, activations=t.activations.in_flight_bytes, logits=logits)


def loss(t: StageTimeline) -> Parts:
    """The loss goes back: logits and what the loss makes of them, beside all activations in flight."""
    (resident, _), (beside, _), (sums, copied) = t.gathered, t.unresharded, t.streamed_head
    return _at_loss(t, t.early_gradients + sums, resident + beside + copied, t.activations.in_flight_bytes, t.lingering)


def second_loss(t: StageTimeline) -> Parts:
    """The second micro-batch's loss goes back where all went forward first: beside the gradients that the first one left."""
    (resident, _), (_, after) = t.gathered, t.unresharded
    lasting = np.where(t.stage.losses_in_flight > 1, t.first_gradients, 0.0)
    lingering = t.lingering - t.has_head * np.minimum(t.stage.losses_in_flight - 1, 1.0) * t.waiting_loss
    held = t.activations.in_flight_bytes - t.activations.micro_batch_bytes
    return _at_loss(t, lasting, np.maximum(resident, after), held, lingering)


def head_backward(t: StageTimeline) -> Parts:
    """The head goes back: the logits' gradient in the compute type, the head and its gradient, and the last layer prefetched."""
    c, per, held = t.context, t.context.per, t.activations
    (resident, running), (beside, _) = t.gathered, t.unresharded
    head = t.has_head * t.local.head * per.gathered
    unsharded = resident + beside + running / 2 + (head if t.traits.root == "neither" else 0.0)
    gradient = t.has_head * c.loss.input_bytes
    return _parts(
        t,
        gradients=t.early_gradients + t.streamed_head[0],
        unsharded=unsharded,
        activations=held.in_flight_bytes + gradient,
        logits=t.lingering + t.has_head * c.loss.projected_bytes,
        communication=np.where(t.in_buckets | c.per.frozen, 0.0, head),
    )


def last_layer_backward(t: StageTimeline) -> Parts:
    """The last layer's feed-forward goes back: all that it saved is there, and no gradient of a layer yet."""
    layer = t.context.layer
    begins = np.where(t.v.recompute_every_second & (t.stage.again < 1), layer.feed_forward_backward_bytes, t.layer_backward)
    return _backward(t, t.early_gradients, t.in_backward[0], t.activations.in_flight_bytes + begins, None)


def second_last_layer_backward(t: StageTimeline) -> Parts:
    """The layer before it goes back, beside the buffer in which the last one's gradients are reduced.

    Where only the last micro-batch is reduced and a rank's stages run one by one, what the last of them has as it begins with its
    second micro-batch takes its place.
    """
    above, below = t.in_backward
    two, held = np.minimum(t.stage.layers, 2.0) - 1, t.activations
    early = np.where(t.reduced_last, 0.0, t.reduction)
    values = (
        t.early_gradients,
        above,
        held.in_flight_bytes - held.last_layer_bytes * two + t.layer_backward,
        early * two,
    )
    alone = t.v.one_by_one & t.reduced_last
    if alone.any():
        others = (t.gradients, below, held.last_stage_alone_bytes + t.layer_backward, early)
        values = tuple(np.where(alone, other, value) for other, value in zip(others, values, strict=True))  # type: ignore[assignment]
    return _backward(t, *values)


def second_last_attention_backward(t: StageTimeline) -> Parts:
    """Only attention of that layer is left: its gradients are there. Where only the last micro-batch is reduced, no others are in
    flight then."""
    above, below = t.in_backward
    last = t.reduced_last & (t.stage.in_flight > 1)
    two, held = np.minimum(t.stage.layers, 2.0) - 1, t.activations
    left = held.in_flight_bytes - held.last_layer_bytes - held.layer_bytes * two + t.context.layer.attention_backward_bytes
    left = left - np.where(last, (t.stage.in_flight - 1) * held.micro_batch_bytes, 0.0)
    moving = np.where(t.reduced_last, t.reduction, t.layer_gradients)
    return _backward(t, np.where(last, t.gradients, t.early_gradients), np.where(last, below, above), left, moving)


def first_layer_backward(t: StageTimeline) -> Parts:
    """The first layer's feed-forward goes back: nearly all gradients are there. Of micro-batches that all went forward first, the
    second one finds all that the first left."""
    gradients, fewer = t.at_first_layer
    left = t.activations.after_first_bytes - fewer + t.layer_backward
    return _backward(t, gradients, t.in_backward[1], left, np.where(t.reduced_last, 0.0, t.reduction))


def first_layer_attention_backward(t: StageTimeline) -> Parts:
    """Only attention of the first layer is left."""
    held = t.activations
    left = held.after_first_bytes - held.first_layer_bytes + t.context.layer.attention_backward_bytes
    moving = np.where(t.reduced_last, t.layer_weights, t.layer_gradients)
    return _backward(t, t.at_first_layer[0], t.in_backward[1], left, moving)


def weight_gradient_pass(t: StageTimeline) -> Parts:
    """A zero-bubble schedule computes the gradients of weights, for each of which the layers are made again."""
    held = t.activations
    left = held.after_first_bytes + held.weight_pass_bytes + t.context.layer.feed_forward_backward_bytes
    return _backward(t, t.at_first_layer[0], t.in_backward[1], left, None)


def embedding_backward(t: StageTimeline) -> Parts:
    """The embedding goes back: its gradient is whole, beside that of the head."""
    at_last = t.root[2]
    unsharded = np.where(at_last > 0, t.local.root * t.context.per.gathered, 0.0)
    return _parts(t, gradients=_without_root(t), unsharded=unsharded, logits=t.lingering, communication=at_last)


def root_reduction(t: StageTimeline) -> Parts:
    """Gradients of embedding and head are reduced."""
    v = t.v
    buffers = np.where(v.ddp | v.streamed | v.no_sync, 0.0, gradient_buffers(t.local.root, t.context))
    return _parts(t, gradients=_without_root(t), logits=t.lingering, communication=buffers)


def optimizer_step(t: StageTimeline) -> Parts:
    """The optimizer's update: all gradients, and a copy of one of the states where it updates all parameters in one go."""
    copied = np.where(t.v.update_at_once, 0.0, 0.5 * t.optimizer) if t.traits.foreach else 0.0
    return _parts(t, gradients=t.gradients + copied)


PEAKS: tuple[Callable[[StageTimeline], Parts], ...] = (
    first_layer_forward,
    forward_end,
    loss,
    second_loss,
    head_backward,
    last_layer_backward,
    second_last_layer_backward,
    second_last_attention_backward,
    first_layer_backward,
    first_layer_attention_backward,
    weight_gradient_pass,
    embedding_backward,
    root_reduction,
    optimizer_step,
)
"""In the order of a step. Of a stage's micro-batches in flight all hold every layer until the first of them has gone back through
it."""


def peak_memory(timeline: StageTimeline, factor: float) -> Parts:
    """The parts at each candidate's peak, of equal ones the first; transient parts times ``factor``."""
    return _largest(list(instants(timeline, factor).values()), np.zeros_like(timeline.v.tp))


def instants(timeline: StageTimeline, factor: float) -> dict[str, Parts]:
    """The parts at each candidate peak, by its name, in the order of a step; transient parts times ``factor``."""
    found = {peak.__name__: peak(timeline) for peak in PEAKS if peak is not weight_gradient_pass or timeline.v.zero_bubble.any()}
    if factor == 1.0:
        return found
    scaled = {name: factor if name in TRANSIENT else 1.0 for name in ("gradients", *TRANSIENT)}
    return {at: {name: part * scaled[name] for name, part in parts.items()} for at, parts in found.items()}


def _at_loss(t: StageTimeline, gradients: Floats, unsharded: Floats, activations: Floats, logits: Floats) -> Parts:
    head = t.has_head * t.local.head * t.context.per.gathered if t.traits.root == "neither" else 0.0
    return _parts(
        t,
        gradients=gradients,
        unsharded=unsharded + head,
        activations=activations + t.has_head * t.context.loss.input_bytes,
        logits=t.has_head * t.context.loss.peak_bytes + logits,
    )


def _backward(t: StageTimeline, gradients: Floats, unsharded: Floats, activations: Floats, buffers: Floats | None) -> Parts:
    """While layers go back: with the gradient of the head, which waits, and the logits until the head's own gradient is made."""
    apart = np.where(t.v.zero_bubble, t.has_head * t.context.loss.projected_bytes, 0.0)
    head = t.root[1]
    return _parts(
        t,
        gradients=gradients,
        unsharded=unsharded,
        activations=activations,
        logits=t.lingering + apart,
        communication=head if buffers is None else buffers + head,
    )


def _without_root(t: StageTimeline) -> Floats:
    """Gradients that stay, without those of embedding and head where no earlier micro-batch has left any."""
    return np.where(t.several, t.gradients, t.gradients * (1 - t.local.root / np.maximum(t.local.stage, 1.0)))


def _parts(
    t: StageTimeline,
    *,
    gradients: Floats,
    unsharded: Floats | None = None,
    activations: Floats | None = None,
    logits: Floats | None = None,
    communication: Floats | None = None,
) -> Parts:
    """Parts that are there, one element a candidate."""
    parts = {
        "gradients": gradients,
        "unsharded_parameters": unsharded,
        "activations": activations,
        "logits": logits,
        "communication": communication,
    }
    return {name: np.broadcast_to(part, t.v.tp.shape) for name, part in parts.items() if part is not None}


def _largest(peaks: Sequence[Parts], zero: Floats) -> Parts:
    """The parts of each candidate's largest peak, of equal ones the first."""
    most = sum(peaks[0].values(), start=zero)
    largest = np.zeros(zero.shape, dtype=np.int8)
    for number, peak in enumerate(peaks[1:], start=1):
        first, *others = peak.values()
        total = sum(others, start=first)
        higher = total > most
        np.copyto(largest, number, where=higher)
        np.copyto(most, total, where=higher)
    parts = {name: zero.copy() for name in ("gradients", *TRANSIENT)}
    for number, peak in enumerate(peaks):
        here = largest == number
        if here.any():
            for name, part in peak.items():
                np.copyto(parts[name], part, where=here)
    return parts
