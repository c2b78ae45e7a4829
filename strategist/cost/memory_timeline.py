"""Memory of a pipeline stage at each candidate peak of a step, one function per peak; the largest is the stage's peak."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from strategist.contract.memory_traits import MemoryTraits
from strategist.cost.activation_memory import StageActivations, stage_activations
from strategist.cost.candidate_arrays import Floats, Mask, Parts, View
from strategist.cost.kept_memory import flat_gradients, kept_inputs, stored_copies
from strategist.cost.memory_context import LocalParameters, MemoryContext
from strategist.cost.model_states import Stage
from strategist.cost.unsharded_memory import (
    gathered_parameters,
    gradient_buffers,
    last_gather,
    root_memory,
    unresharded_stages,
    unsummed_gradients,
)
from strategist.frozen import frozen

TRANSIENT_PARTS = ("unsharded_parameters", "activations", "logits", "communication")
"""Parts of memory that are allocated and freed within a step."""


@frozen
class StageTimeline:
    """One stage during a step.

    local: its parameters on one rank.
    gradients, optimizer: bytes that stay between passes of layers.
    first_gradients: those when the first of a rank's stages that run one by one begins its backward pass, or ``gradients``.
    """

    stage: Stage
    context: MemoryContext
    local: LocalParameters
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
    def activations(self) -> StageActivations:
        return stage_activations(self.stage, self.context.layer, self.v, self.traits)

    @cached_property
    def gathered(self) -> tuple[Floats, Floats]:
        """Gathered parameters: resident through a micro-batch, and of layers in transit."""
        return gathered_parameters(self.stage, self.local, self.context)

    @cached_property
    def in_backward(self) -> tuple[Floats, Floats]:
        """Gathered parameters in the backward pass of the last layer, and in that of the first."""
        (resident, transit), (at_loss, after_backward) = self.gathered, self.unresharded
        return resident + transit + at_loss, np.maximum(resident + transit, after_backward)

    @cached_property
    def unresharded(self) -> tuple[Floats, Floats]:
        return unresharded_stages(self.stage, self.local, self.context)

    @cached_property
    def root(self) -> tuple[Floats, Floats, Floats]:
        """Bytes of embedding and head: when gathered, the pending gradient of the head, and the gradients of both."""
        return root_memory(self.stage, self.local, self.context)

    @cached_property
    def has_head(self) -> Floats:
        return np.ceil(self.stage.has_head)

    @cached_property
    def accumulates(self) -> Mask:
        """Whether gradients of earlier micro-batches may exist."""
        return np.asarray(self.v.accumulation > 1)

    @cached_property
    def before_first_backward(self) -> Mask:
        """Whether no micro-batch has run its backward pass yet when the most are in flight."""
        return np.asarray((self.v.pp > 1) & ~self.v.streamed & (self.stage.in_flight >= self.v.accumulation))

    @cached_property
    def reduced_last(self) -> Mask:
        """Whether gradients are only reduced with the last of several micro-batches; earlier ones accumulate unsharded."""
        mask: Mask = self.v.no_sync & self.accumulates & ~self.v.ddp & ~self.v.streamed & (self.traits.parameters == "shards")
        return mask

    @cached_property
    def in_buckets(self) -> Mask:
        """Whether gradients lie in buckets, which exist throughout the step."""
        return np.asarray((self.v.ddp & (self.v.dp_replicate > 1)) | (self.traits.parameters == "copies"))

    @cached_property
    def unsummed(self) -> Floats:
        return unsummed_gradients(self.stage, self.local, self.context)

    @cached_property
    def early_gradients(self) -> Floats:
        """Bytes of gradients that exist before the backward pass of the layers."""
        exist = (self.accumulates & ~self.before_first_backward) | self.in_buckets
        return np.where(exist, self.first_gradients, 0.0) + self.unsummed

    @cached_property
    def streamed_head(self) -> tuple[Floats, Floats]:
        """With a streamed head: the sum of its gradients over earlier micro-batches, and the layer that is being copied."""
        v, per = self.v, self.context.per
        gradient_sum = 0.0 if per.frozen else self.has_head * self.local.head * v.reduce_bytes
        return np.where(v.streamed & self.accumulates, gradient_sum, 0.0), np.where(v.streamed, self.gathered[1] / 2, 0.0)

    @cached_property
    def waiting_loss(self) -> Floats:
        """Bytes that a loss saves until its backward pass."""
        return self.context.loss.saved_bytes + self.context.loss.input_bytes

    @cached_property
    def other_logits(self) -> Floats:
        """Bytes of logits of other micro-batches than the current one."""
        lingering = np.where(self.accumulates, self.context.loss.lingering_bytes, 0.0)
        return self.has_head * (lingering + (self.stage.losses_in_flight - 1) * self.waiting_loss)

    @cached_property
    def backward_logits(self) -> Floats:
        """Bytes of logits during the backward pass of layers."""
        separate_logits = np.where(self.v.zero_bubble, self.has_head * self.context.loss.projected_bytes, 0.0)
        return self.other_logits + separate_logits

    @cached_property
    def layer_gradients(self) -> Floats:
        """A layer's gradients in the compute type, with their reduction buffer."""
        return gradient_buffers(self.local.layer, self.context)

    @cached_property
    def layer_weights(self) -> Floats:
        """A layer's gradients in the compute type."""
        return np.zeros_like(self.v.tp) if self.context.per.frozen else self.local.layer * self.context.per.gathered

    @cached_property
    def reduction(self) -> Floats:
        """The reduction buffer of a layer's gradients."""
        return np.maximum(self.layer_gradients - self.layer_weights, 0.0)

    @cached_property
    def layer_backward(self) -> Floats:
        """Recomputed activations of a layer, and gradients at the start of its feed-forward's backward pass."""
        layer = self.context.layer
        return layer.recomputed_bytes + layer.feed_forward_backward_bytes

    @cached_property
    def at_first_layer(self) -> tuple[Floats, Floats]:
        """Gradients in the backward pass of the first layer, and saved bytes that are freed by then.

        Without gradients of an earlier micro-batch, those of the first layer and of the root are missing. If a second micro-batch
        follows, all gradients exist in its backward pass, but the activations of the first layer and the stage's output are freed:
        it counts if it takes more.
        """
        missing = self.first_gradients * (self.local.root + self.local.layer) / np.maximum(self.local.stage, 1.0)
        freed = self.activations.first_layer_bytes + self.activations.output_bytes
        second_counts = self.before_first_backward & self.accumulates & (missing > freed)
        all_exist = self.in_buckets | (self.accumulates & ~self.before_first_backward) | second_counts
        existing = np.where(all_exist, self.first_gradients, self.first_gradients - missing)
        return existing + self.traits.piled_gradient_bytes * self.local.stage + self.unsummed, np.where(second_counts, freed, 0.0)


def first_layer_forward(t: StageTimeline) -> Parts:
    """Forward pass of the first layer: root and layer, with the buffers that they were gathered into."""
    return _parts(t, gradients=np.where(t.v.pp > 1, 0.0, t.early_gradients), unsharded=t.root[0])


def forward_end(t: StageTimeline) -> Parts:
    """End of the forward pass: all activations in flight, the logits, and all copies made by autocast."""
    local = t.local
    cast = np.where(t.v.autocast, (t.stage.layers * local.layer + local.head) * t.context.compute_bytes, 0.0)
    logits = t.other_logits + t.has_head * t.context.loss.projected_bytes
    return _parts(t, gradients=t.early_gradients, unsharded=cast, activations=t.activations.in_flight_bytes, logits=logits)


def loss(t: StageTimeline) -> Parts:
    """Backward pass of the loss, or all of a chunked one: logits and what it computes from them, with all activations in flight."""
    (resident, _), (at_loss, _), (head_sums, copied_layer) = t.gathered, t.unresharded, t.streamed_head
    unsharded = resident + at_loss + copied_layer + last_gather(t.stage, t.local, t.context)
    return _at_loss(t, t.early_gradients + head_sums, unsharded, t.activations.in_flight_bytes, t.other_logits)


def second_loss(t: StageTimeline) -> Parts:
    """Backward pass of the second micro-batch's loss, if all forward passes come first: with the gradients of the first one."""
    (resident, _), (_, after_backward) = t.gathered, t.unresharded
    gradients = np.where(t.stage.losses_in_flight > 1, t.first_gradients, 0.0)
    other_logits = t.other_logits - t.has_head * np.minimum(t.stage.losses_in_flight - 1, 1.0) * t.waiting_loss
    activations = t.activations.in_flight_bytes - t.activations.micro_batch_bytes
    return _at_loss(t, gradients, np.maximum(resident, after_backward), activations, other_logits)


def head_backward(t: StageTimeline) -> Parts:
    """Backward pass of the head: the logits' gradient, the head and its gradient, and the prefetched last layer."""
    c, per, activations = t.context, t.context.per, t.activations
    (resident, transit), (at_loss, _) = t.gathered, t.unresharded
    head = t.has_head * t.local.head * per.gathered
    unsharded = resident + at_loss + transit / 2 + (head if t.traits.root == "neither" else 0.0)
    gradient = t.has_head * c.loss.input_bytes
    return _parts(
        t,
        gradients=t.early_gradients + t.streamed_head[0],
        unsharded=unsharded,
        activations=activations.in_flight_bytes + gradient,
        logits=t.other_logits + t.has_head * c.loss.projected_bytes,
        communication=np.where(t.in_buckets | c.per.frozen, 0.0, head),
    )


def last_layer_backward(t: StageTimeline) -> Parts:
    """Backward pass of the last layer's feed-forward: all that it saved, and no gradient of a layer yet."""
    layer = t.context.layer
    layer_start = np.where(
        t.v.recompute_every_second & (t.stage.recomputed_share < 1), layer.feed_forward_backward_bytes, t.layer_backward
    )
    return _backward(t, t.early_gradients, t.in_backward[0], t.activations.in_flight_bytes + layer_start, None)


def second_last_layer_backward(t: StageTimeline) -> Parts:
    """Backward pass of the layer before the last, with the reduction buffer of the last one's gradients.

    If only the last micro-batch is reduced and a rank's stages run one by one, this is instead the instant at which the last
    stage begins with its second micro-batch.
    """
    last_gathered, first_gathered = t.in_backward
    further_layer, activations = np.minimum(t.stage.layers, 2.0) - 1, t.activations
    reduction = np.where(t.reduced_last, 0.0, t.reduction)
    remaining = activations.in_flight_bytes - activations.last_layer_bytes * further_layer + t.layer_backward
    values = (t.early_gradients, last_gathered, remaining, reduction * further_layer)
    alone = t.v.sequential_backward & t.reduced_last
    if alone.any():
        alone_values = (t.gradients, first_gathered, activations.last_stage_alone_bytes + t.layer_backward, reduction)
        values = tuple(np.where(alone, other, value) for other, value in zip(alone_values, values, strict=True))  # type: ignore[assignment]
    return _backward(t, *values)


def second_last_attention_backward(t: StageTimeline) -> Parts:
    """Backward pass of the attention of the layer before the last, whose other gradients exist. If only the last micro-batch is
    reduced, no others are in flight then.
    """
    last_gathered, first_gathered = t.in_backward
    alone = t.reduced_last & (t.stage.in_flight > 1)
    further_layer, activations = np.minimum(t.stage.layers, 2.0) - 1, t.activations
    remaining = activations.in_flight_bytes - activations.last_layer_bytes - activations.layer_bytes * further_layer
    remaining = remaining + t.context.layer.attention_backward_bytes
    remaining = remaining - np.where(alone, (t.stage.in_flight - 1) * activations.micro_batch_bytes, 0.0)
    buffers = np.where(t.reduced_last, t.reduction, t.layer_gradients)
    gradients, unsharded = np.where(alone, t.gradients, t.early_gradients), np.where(alone, first_gathered, last_gathered)
    return _backward(t, gradients, unsharded, remaining, buffers)


def first_layer_backward(t: StageTimeline) -> Parts:
    """Backward pass of the first layer's feed-forward: nearly all gradients exist, of a second micro-batch all."""
    gradients, freed = t.at_first_layer
    remaining = t.activations.after_first_bytes - freed + t.layer_backward + kept_inputs(t.stage, t.activations, t.context)
    return _backward(t, gradients, t.in_backward[1], remaining, np.where(t.reduced_last, 0.0, t.reduction))


def first_layer_attention_backward(t: StageTimeline) -> Parts:
    """Backward pass of the first layer's attention."""
    remaining = t.activations.after_first_bytes - t.activations.first_layer_bytes + kept_inputs(t.stage, t.activations, t.context)
    buffers = np.where(t.reduced_last, t.layer_weights, t.layer_gradients)
    return _backward(t, t.at_first_layer[0], t.in_backward[1], remaining + t.context.layer.attention_backward_bytes, buffers)


def weight_gradient_pass(t: StageTimeline) -> Parts:
    """Weight gradients of a zero-bubble schedule, for each of which layers are recomputed; other schedules have no such pass."""
    activations = t.activations
    remaining = activations.after_first_bytes + activations.weight_pass_bytes + t.context.layer.feed_forward_backward_bytes
    return _backward(t, t.at_first_layer[0], t.in_backward[1], np.where(t.v.zero_bubble, remaining, 0.0), None)


def embedding_backward(t: StageTimeline) -> Parts:
    """Backward pass of the embedding: its unsharded gradient, and that of the head."""
    root_gradients = t.root[2]
    unsharded = np.where(root_gradients > 0, t.local.root * t.context.per.gathered, 0.0)
    return _parts(t, gradients=_without_root(t), unsharded=unsharded, logits=t.other_logits, communication=root_gradients)


def root_reduction(t: StageTimeline) -> Parts:
    """Reduction of the gradients of embedding and head."""
    v = t.v
    buffers = np.where(v.ddp | v.streamed | v.no_sync, 0.0, gradient_buffers(t.local.root, t.context))
    return _parts(t, gradients=_without_root(t), logits=t.other_logits, communication=buffers)


def optimizer_step(t: StageTimeline) -> Parts:
    """Optimizer step: gradients, with flat copies, and a copy of one of the states if all parameters are updated in one call."""
    copied = np.where(t.v.update_at_once, 0.0, 0.5 * t.optimizer) if t.traits.foreach else 0.0
    gradients = t.gradients + copied + flat_gradients(t.local, t.context)
    return _parts(t, gradients=gradients, unsharded=stored_copies(t.local, t.context))


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
"""Candidate peaks in the order of a step. Micro-batches in flight hold every layer until a backward pass has passed it."""


def peak_memory(timeline: StageTimeline, factor: float) -> Parts:
    """The parts at each candidate's peak (the first of equal ones); transient parts times ``factor``."""
    return _largest(list(instants(timeline, factor).values()), np.zeros_like(timeline.v.tp))


def instants(timeline: StageTimeline, factor: float) -> dict[str, Parts]:
    """The parts at each candidate peak, by its name, in the order of a step; transient parts times ``factor``."""
    peaks = [peak for peak in PEAKS if peak is not weight_gradient_pass or timeline.v.zero_bubble.any()]
    by_instant = {peak.__name__: peak(timeline) for peak in peaks}
    if factor == 1.0:
        return by_instant
    scaled = {name: factor if name in TRANSIENT_PARTS else 1.0 for name in ("gradients", *TRANSIENT_PARTS)}
    return {instant: {name: part * scaled[name] for name, part in parts.items()} for instant, parts in by_instant.items()}


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
    """Parts during the backward pass of layers: with the pending gradient of the head, and the logits until that exists."""
    return _parts(
        t,
        gradients=gradients,
        unsharded=unsharded,
        activations=activations,
        logits=t.backward_logits,
        communication=t.root[1] if buffers is None else buffers + t.root[1],
    )


def _without_root(t: StageTimeline) -> Floats:
    """Gradients that stay, without those of embedding and head if no earlier micro-batch has produced any."""
    return np.where(t.accumulates, t.gradients, t.gradients * (1 - t.local.root / np.maximum(t.local.stage, 1.0)))


def _parts(
    t: StageTimeline,
    *,
    gradients: Floats,
    unsharded: Floats | None = None,
    activations: Floats | None = None,
    logits: Floats | None = None,
    communication: Floats | None = None,
) -> Parts:
    """The given parts, one element per candidate."""
    parts = {
        "gradients": gradients, "unsharded_parameters": unsharded, "activations": activations, "logits": logits,
        "communication": communication,
    }  # fmt: skip
    shape = t.v.tp.shape
    return {
        name: part if np.shape(part) == shape else np.broadcast_to(part, shape) for name, part in parts.items() if part is not None
    }


def _largest(peaks: Sequence[Parts], zero: Floats) -> Parts:
    """The parts of each candidate's largest peak (the first of equal ones)."""
    maximum = sum(peaks[0].values(), start=zero)
    largest = np.zeros(zero.shape, dtype=np.int8)
    for index, peak in enumerate(peaks[1:], start=1):
        first, *others = peak.values()
        total = sum(others, start=first)
        higher = total > maximum
        np.copyto(largest, index, where=higher)
        np.copyto(maximum, total, where=higher)
    parts = {name: zero.copy() for name in ("gradients", *TRANSIENT_PARTS)}
    for index, peak in enumerate(peaks):
        rows = largest == index
        if rows.any():
            for name, part in peak.items():
                np.copyto(parts[name], part, where=rows)
    return parts
