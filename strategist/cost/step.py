"""Step time: computation of the micro-batches on the slowest stage, pipeline bubble, and exposed communication."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration, Factors
from strategist.cost.candidate_arrays import Counts, Floats, Mask, Number, Parts, View
from strategist.cost.comm import Collectives, StageCollectives
from strategist.cost.compute import LayerSeconds, launch_seconds, layer_seconds
from strategist.cost.layer_flops import Work
from strategist.cost.layer_overlap import CONTENTION, EPSILON, exposed_layer_links, paired_share
from strategist.cost.model_states import stacked, stages
from strategist.cost.offload import OffloadSeconds, exposed_copy_seconds, offload_seconds
from strategist.cost.process_groups import groups_of
from strategist.cost.rates import Rates
from strategist.cost.step_inputs import LayerInputs, StageInputs, StepInputs, layer_inputs, stage_inputs
from strategist.frozen import frozen

LINK_PARTS = ("tp_communication", "cp_communication", "ep_communication")
"""Exposed collectives of a micro-batch, during which links may be busy."""


@frozen
class Step:
    """Seconds of a step by the parts of ``contract.estimate.TimeParts``, and seconds in which some collective runs, hidden or
    exposed.
    """

    time: Parts
    communication_seconds: Floats

    @cached_property
    def seconds(self) -> Floats:
        """Sum of all parts."""
        return sum(self.time.values(), start=np.zeros(1))

    def spread(self, rows: Counts, count: int) -> "Step":
        """The step as ``rows`` of a table of ``count`` rows; NaN in the others."""

        def column(figures: Floats) -> Floats:
            found = np.full(count, np.nan)
            found[rows] = figures
            return found

        time = {name: column(figures) for name, figures in self.time.items()}
        return Step(time=time, communication_seconds=column(self.communication_seconds))


def step(inputs: StepInputs, factors: Factors) -> Step:
    """The step of the slowest stage, which determines the pace of the pipeline."""
    common = _shared(inputs, factors, paired_share(inputs.v))
    first = _stage_step(inputs.first, common, inputs, factors)
    if (inputs.v.pp == 1).all():
        return replace(first, communication_seconds=np.minimum(first.communication_seconds, first.seconds))
    last = _stage_step(inputs.last, common, inputs, factors)
    slower = last.seconds > first.seconds
    time = {name: np.where(slower, last.time[name], first.time[name]) for name in first.time}
    links = np.where(slower, last.communication_seconds, first.communication_seconds)
    return Step(time=time, communication_seconds=np.minimum(links, np.where(slower, last.seconds, first.seconds)))


def first_rank_time(inputs: StepInputs, factors: Factors) -> Parts:
    """Seconds of the step by part, on the first rank of a pipeline."""
    return _stage_step(inputs.first, _shared(inputs, factors, paired_share(inputs.v)), inputs, factors).time


@frozen
class RankSteps:
    """Seconds of a step by part, on ranks of a pipeline.

    first, last: the ranks at both ends.
    middle: a rank with as many layers as the first, without embedding and head.
    embedding, head: the same with the embedding, and with the head.
    hop_seconds: one transfer between ranks.
    """

    first: Parts
    middle: Parts
    embedding: Parts
    head: Parts
    last: Parts
    hop_seconds: Floats


def rank_steps(
    model: ModelShape, cluster: Cluster, workload: Workload, stack: Stack, v: View, work: Work, calibration: Calibration
) -> RankSteps:
    """Inputs of the pipeline simulator: seconds of each kind of rank. All kinds are timed in one call, as rows of a matrix."""
    cluster, (first, last) = calibration.calibrated_cluster(cluster), stages(model, v, stack.memory_traits)
    middle = replace(first, ends=np.zeros_like(first.ends), has_head=np.zeros_like(first.has_head))
    head = np.where(v.pp == 1, model.head_parameters, float(model.vocab_size * model.hidden_size))
    kinds = {
        "first": first,
        "middle": middle,
        "embedding": replace(middle, ends=middle.ends + model.embedding_parameters),
        "head": replace(middle, ends=head, has_head=np.ones_like(v.pp)),
        "last": last,
    }
    groups = groups_of(cluster, stack, v)
    inputs = layer_inputs(model, groups, workload, stack, first, work)
    ranks = stage_inputs(stacked(tuple(kinds.values())), model, groups, workload, stack, work)
    common = _shared(inputs, calibration.factors, paired_share(v))
    time = _stage_step(ranks, common, inputs, calibration.factors).time
    columns = {name: np.broadcast_to(column, ranks.layers.shape) for name, column in time.items()}
    times = {kind: {name: column[row] for name, column in columns.items()} for row, kind in enumerate(kinds)}
    return RankSteps(**times, hop_seconds=common.links.pp)


@frozen
class _Shared:
    """Seconds of one micro-batch that all stages share: of a layer and of the head.

    waits: exposed launch seconds of a layer.
    hiding_share: share of a layer's computation that hides other collectives on links that FSDP uses, too.
    """

    rates: Rates
    layer: LayerSeconds
    links: Collectives
    waits: Floats
    hiding_share: Floats
    head_matmul: Floats
    head_memory_bound: Floats
    inputs: LayerInputs

    @cached_property
    def head(self) -> Floats:
        """Seconds of the head and of the loss."""
        return self.head_matmul + self.head_memory_bound + self.links.head

    @cached_property
    def computing(self) -> Floats:
        """Seconds of computation of a layer."""
        return self.layer.forward + self.layer.backward

    @cached_property
    def rooms(self) -> tuple[Floats, Floats]:
        """Seconds of a layer's forward and of its backward pass that hide data-parallel collectives, which continue while a device
        waits for launches; ZeRO-1 gathers after its update.
        """
        inputs, layer, overlaps = self.inputs, self.layer, self.rates.overlaps
        hiding_factor = 1 - self.hiding_share + self.waits / self.computing
        gathers_late = np.where(inputs.v.gathered_once, inputs.hides_reductions, 1.0)
        return layer.forward * hiding_factor * overlaps * gathers_late, layer.backward * hiding_factor * overlaps

    @cached_property
    def hidden_links(self) -> Floats:
        """Seconds of a layer's ring that attention hides, and of expert exchanges that other passes hide."""
        links = self.inputs.links
        return links.cp - self.links.cp + np.where(self.inputs.v.ep_overlap, links.ep - self.links.ep, 0.0)


def _shared(inputs: LayerInputs, factors: Factors, paired: Floats) -> _Shared:
    """Seconds that all stages share, because their layers are equal. ``paired``: share of passes that ``ep_overlap`` pairs."""
    rates = inputs.rates.calibrated(factors)
    layer = layer_seconds(inputs.layer, rates, factors)
    exposed_links, hiding_share = exposed_layer_links(inputs, layer, factors, paired)
    device_seconds = layer.forward + layer.backward + exposed_links.tp + exposed_links.cp + exposed_links.ep
    launches = inputs.kernels * factors.kernels + inputs.routing_kernels * factors.routing
    awaited = inputs.awaited_kernels * factors.routing + inputs.expert_kernels
    return _Shared(
        rates=rates,
        layer=layer,
        links=exposed_links,
        waits=launch_seconds(launches * rates.launch_seconds, device_seconds, rates) + awaited * rates.launch_seconds,
        hiding_share=hiding_share,
        head_matmul=(1 + inputs.layer.backward_matmuls) * inputs.head.seconds(factors, rates.memory_rate),
        head_memory_bound=inputs.head_moved_bytes / rates.memory_rate,
        inputs=inputs,
    )


def layer_step_seconds(inputs: LayerInputs, factors: Factors) -> tuple[Floats, Floats]:
    """Seconds of one layer and micro-batch: computation, and waiting that no schedule hides; ``ep_overlap`` pairs all passes. Then
    those of its weight gradients, which zero-bubble schedules run at any time.
    """
    common = _shared(inputs, factors, np.ones_like(inputs.v.pp))
    layer, links = common.layer, common.links
    computed = layer.matmul + layer.attention + layer.memory_bound + layer.recompute + common.waits
    return computed + links.tp + links.cp + links.ep, layer.matmul / 3


def _stage_step(stage: StageInputs, common: _Shared, inputs: LayerInputs, factors: Factors) -> Step:
    v, rates, layer, links, n = inputs.v, common.rates, common.layer, common.links, stage.layers
    host, micro_batches = offload_seconds(stage.host, rates, v), v.accumulation
    memory_bound = n * (layer.memory_bound + stage.copied_bytes / rates.memory_rate) + stage.weight_bytes / rates.memory_rate
    per_micro_batch = {
        "matmul": n * layer.matmul + stage.has_head * common.head_matmul,
        "attention": n * layer.attention,
        "memory_bound": memory_bound + stage.has_head * common.head_memory_bound,
        "recompute": n * layer.recompute,
        "launch": n * common.waits + factors.micro_batch_seconds,
        "tp_communication": n * links.tp + stage.has_head * links.head,
        "cp_communication": n * links.cp,
        "ep_communication": n * links.ep,
    }
    busy: Floats = sum(per_micro_batch.values(), start=np.zeros(1))
    data_parallel, host_copies = _data_parallel_seconds(stage, common, host, inputs)
    computing = common.computing
    sharding = _sharding_seconds(n, links, stage.links, v)
    hidden_sharding = np.maximum(sharding - data_parallel, 0.0)
    data_parallel = data_parallel + inputs.slows_computation * CONTENTION * hidden_sharding * computing / (computing + common.waits)
    other_stages = _other_stages_seconds(busy, stage.has_head * common.head, common.head, n, inputs.model_layers)
    bubble = other_stages / np.maximum(busy, EPSILON) * _idle_seconds(busy, n * layer.matmul / 3, v)
    hidden_links = micro_batches * n * common.hidden_links
    hiding = micro_batches * n * common.hiding_share * computing  # computation beside which a layer's collectives use the ports
    room = micro_batches * (busy - sum(per_micro_batch[name] for name in LINK_PARTS)) - hidden_sharding - hiding
    time = {name: micro_batches * seconds for name, seconds in per_micro_batch.items()}
    time |= {
        "dp_communication": data_parallel + stage.links.update,
        "pp_communication": _transfer_seconds(links, room, v, rates),
        "bubble": np.where(v.streamed, _streamed_idle_seconds(n, layer, common.waits, v), bubble) if v.streamed.any() else bubble,
        "offload": host_copies
        + np.maximum(host.per_step - micro_batches * busy * rates.overlaps, 0.0)
        + _host_update_seconds(host, stage, layer.backward + common.waits, rates, v)
        + micro_batches * _activation_offload_seconds(n, common, host, inputs),
        "optimizer": _device_update_seconds(stage, rates, factors) + n * factors.update_seconds + factors.overhead_seconds,
    }
    straggler_wait = factors.wait * np.log2(rates.nodes) * sum(time.values(), start=np.zeros(1))
    time["dp_communication"] = time["dp_communication"] + straggler_wait
    return Step(time=time, communication_seconds=_link_seconds(sharding, links, time, v) + hidden_links)


def _device_update_seconds(stage: StageInputs, rates: Rates, factors: Factors) -> Floats:
    """Seconds of the device's own update."""
    computing = stage.update_bytes / rates.memory_rate + stage.update_matmuls.seconds(factors, rates.memory_rate)
    return computing + stage.piece_copies * rates.launch_seconds


def _host_update_seconds(host: OffloadSeconds, stage: StageInputs, backward: Floats, rates: Rates, v: View) -> Floats:
    """Exposed seconds of the hosts' update: all of it, or if layers are updated as soon as their last gradients arrive, what
    exceeds the ``backward`` seconds of layers (in the last round of streamed stages, else in the last micro-batch), at least the
    update of one layer, or of embedding and head, which FSDP2 reduces together after the layers. A CPU hides none."""
    if not v.update_at_once.any():
        return host.update
    n = stage.layers
    hiding_seconds = n * np.where(v.streamed, v.round_batches, 1.0) * backward * rates.overlaps
    exposed = np.maximum(host.update - hiding_seconds, host.update * np.maximum(1 / np.maximum(n, 1.0), stage.last_reduced))
    return np.where(v.update_at_once, exposed, host.update)


def _data_parallel_seconds(stage: StageInputs, common: _Shared, host: OffloadSeconds, inputs: LayerInputs) -> tuple[Floats, Floats]:
    """Exposed seconds of a step in data-parallel collectives and in the host copies that precede them.

    A layer's gather overlaps with the layer before it, its reduction with the next one; the first gather and the last reduction
    overlap with nothing (arXiv 2304.11277, section 3.3), nor does any reduction of a stack that does not hide them. Copies overlap
    with collectives and take the share of the link that these leave.
    """
    v, n, rates, links = inputs.v, stage.layers, common.rates, common.links
    hides_reductions, stage_links = inputs.hides_reductions, stage.links
    deferred = v.no_sync & (v.accumulation > 1)
    reduced = np.where(deferred, 0.0, links.reduce)
    gather, gather_and_reduce = links.gather_forward, links.gather_backward + reduced * hides_reductions
    forward_links = _concurrent_seconds(gather, host.forward / np.maximum(n, 1.0), rates)
    backward_links = _concurrent_seconds(gather_and_reduce, host.backward / np.maximum(n, 1.0), rates)
    room_forward, room_backward = common.rooms
    exposed_forward = _exposed_chunks_seconds(n, forward_links, room_forward, v.gathered_once, v)
    exposed_backward = n * np.maximum(backward_links - room_backward, 0.0) + np.minimum(backward_links, room_backward)
    exposed_backward = exposed_backward + np.where(deferred, 0.0, stage_links.reduce) + (1 - hides_reductions) * n * reduced
    spare = np.maximum(room_backward - backward_links, 0.0)  # of a layer's backward pass, hiding nothing yet
    layer_reduce, replica = links.reduce, stage_links.replica
    last_reduction = _exposed_chunks_seconds(n, layer_reduce, spare * hides_reductions, deferred, v) + stage_links.reduce
    spare = np.maximum(spare - np.where(deferred, layer_reduce * hides_reductions, 0.0), 0.0) * inputs.hides_replicas
    replicas = v.reductions * np.maximum(replica - n * spare, replica / np.maximum(n, 1.0))
    counts = v.gather_counts
    link_seconds = counts.forward * gather + counts.backward * gather_and_reduce
    copy_share = 1 - link_seconds / np.maximum(counts.forward * forward_links + counts.backward * backward_links, EPSILON)
    exposed = counts.forward * exposed_forward + counts.backward * exposed_backward + counts.ends * stage_links.gather
    return exposed * np.maximum(1 - copy_share, 0.0) + np.where(deferred, last_reduction, 0.0) + replicas, exposed * copy_share


def _exposed_chunks_seconds(n: Floats, collective: Floats, room: Floats, once: Mask, v: View) -> Floats:
    """Exposed seconds of ``n`` layers' collectives, of which computation of a layer hides up to ``room``, and the first or last
    layer's overlaps with nothing.

    A looped pipeline that runs its collectives ``once`` a step gathers each further stage of a rank while the one before it runs a
    round of pp micro-batches (breadth first: all), and reduces each while the next one runs its last round
    (megatron/core/pipeline_parallel/schedules.py: ``param_sync_chunk_id``, ``grad_sync_chunk_id``). Only one stage's collectives
    have no more than the layers of a single micro-batch to overlap with.
    """
    each_layer = np.maximum(collective - room, 0.0)
    looped = np.maximum(n * np.maximum(collective - room * v.looped_batches, 0.0), n / v.virtual_stages * each_layer)
    return np.where(once & v.looped, looped, n * each_layer) + np.minimum(collective, room)


def _activation_offload_seconds(n: Floats, common: _Shared, host: OffloadSeconds, inputs: LayerInputs) -> Floats:
    """Exposed seconds of activation offload of one micro-batch on a stage. A pipeline stage that is not the last waits for the
    whole copy of its last layer, because other stages decide when its backward pass begins.
    """
    v, rates = inputs.v, common.rates
    if not v.activations_away.any():
        return np.zeros_like(n)
    layer, links, link_share = common.layer, common.links, rates.shared_link
    hiding_factor = (1 + common.waits / (layer.forward + layer.backward)) * rates.overlaps
    copy, layers = inputs.saved_bytes / rates.host_bytes_per_second, np.maximum(n, 1.0)
    to_host = exposed_copy_seconds(copy, layer.forward * hiding_factor, link_share * links.gather_forward + host.forward / layers)
    gathers_and_reductions = link_share * (links.gather_backward + links.reduce) + host.backward / layers
    to_device = exposed_copy_seconds(copy, layer.backward * hiding_factor, gathers_and_reductions)
    return np.where(v.activations_away, n * (to_host + to_device) + np.where(v.pp > 1, copy, 0.0), 0.0)


def _concurrent_seconds(collectives: Floats, copies: Floats, rates: Rates) -> Floats:
    """Seconds of concurrent collectives and host copies, where collectives take a share of the host link: over PCIe at full rate
    all of it, over NVLink none.
    """
    return np.where(copies > 0, np.maximum(collectives, rates.shared_link * collectives + copies), collectives)


def _other_stages_seconds(busy: Floats, stage_head: Floats, head: Floats, n: Floats, layers: Number) -> Floats:
    """Seconds of one micro-batch on all other stages, for which this one waits while the pipeline fills and drains."""
    each = (busy - stage_head) / np.maximum(n, 1.0)
    return np.maximum(each * layers + head - busy, 0.0)


def _idle_seconds(busy: Floats, weight_seconds: Floats, v: View) -> Floats:
    """Idle seconds of a step per further rank; ``busy`` are the seconds of one micro-batch, ``weight_seconds`` those of its weight
    gradients.

    With F, I, W for forward pass and gradients of inputs and of weights: 1F1B and GPipe F + I + W, looped schedules that over their
    stages (arXiv 2104.04473, section 2.2). Zero-bubble schedules fill idle time with W: looped F + I - W (arXiv 2401.10241, table
    1). V-shaped schedules have half of I, or I - W if that is more, and DualPipe half of F + I - W: results of simulating torch's
    own order of actions (``cost.pipeline_simulator``); the papers count each rank from its own first action (arXiv 2401.10241,
    section 6; arXiv 2412.19437, table 2).
    """
    idle = busy / v.virtual_stages
    if not v.zero_bubble.any():
        return idle
    idle = np.where(v.interleaved_zero_bubble, np.maximum(busy - 2 * weight_seconds, 0.0) / v.virtual_stages, idle)
    inputs = np.maximum(2 / 3 * busy - weight_seconds, 0.0)
    idle = np.where(v.zbv, np.maximum(inputs, 2 * (inputs - weight_seconds)) / 2, idle)
    return np.where(v.dual_pipe, np.maximum(busy - 2 * weight_seconds, 0.0) / 2, idle)


def _streamed_idle_seconds(n: Floats, layer: LayerSeconds, waits: Floats, v: View) -> Floats:
    """Idle seconds of streamed stages. Stages of about a layer are assigned to the devices in turn, each for all micro-batches
    of a round: a device waits before its first and after its last stage for the others' first and last micro-batches. An
    asynchronous update lets the next step's first stages fill that time (arXiv 2604.27085). With fewer micro-batches than
    devices it also waits before each further stage until the first micro-batch has passed the other devices.
    """
    idle_ends = np.where(v.async_optimizer_step, 0.0, v.pp - 1)
    idle_between = np.maximum(n - 1, 0.0) * np.maximum(v.pp - v.round_batches, 0.0)
    idle: Floats = v.rounds * (idle_ends + idle_between) * (layer.forward + layer.backward + waits)
    return idle


def _transfer_seconds(links: Collectives, room: Floats, v: View, rates: Rates) -> Floats:
    """Exposed seconds of transfers between stages: computation hides up to ``room`` seconds, but none while the pipeline fills."""
    transfers = v.transfers * links.pp
    filling = v.filling_transfers * links.pp
    exposed = np.maximum(filling + (1 - rates.overlaps) * transfers, 2 * (v.pp - 1) * links.pp + transfers - room)
    return np.where(v.pp > 1, exposed, 0.0)


def _link_seconds(sharding: Floats, links: Collectives, time: Parts, v: View) -> Floats:
    """Seconds in which some collective runs; ``sharding`` are those between data-parallel ranks."""
    transfers = np.where(v.pp > 1, (v.filling_transfers + v.transfers) * links.pp, 0.0)
    return sum(time[name] for name in LINK_PARTS) + (sharding + transfers)


def _sharding_seconds(n: Floats, links: Collectives, stage_links: StageCollectives, v: View) -> Floats:
    """Seconds of a step in which a collective between data-parallel ranks runs, hidden or exposed."""
    reduced = n * links.reduce + stage_links.reduce + stage_links.replica
    return gather_seconds(n, links, stage_links, v) + stage_links.update + v.reductions * reduced


def gather_seconds(n: Floats, links: Collectives, stage_links: StageCollectives, v: View) -> Floats:
    """Seconds of a step in which a stage of ``n`` layers gathers parameters."""
    counts = v.gather_counts
    layers = counts.forward * links.gather_forward + counts.backward * links.gather_backward
    return n * layers + counts.ends * stage_links.gather
