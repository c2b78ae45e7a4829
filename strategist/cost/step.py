"""Step time: computation of the micro-batches on the slowest stage, pipeline bubble, and exposed communication."""

from dataclasses import dataclass, replace

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
from strategist.cost.model_states import stacked, stages
from strategist.cost.offload import OffloadSeconds, offload_seconds, waiting_seconds
from strategist.cost.rates import Rates
from strategist.cost.step_inputs import LayerInputs, StageInputs, StepInputs, layer_inputs, stage_inputs

CONTENTION = 0.16
"""Seconds that computation loses per second of concurrent collectives, which take multiprocessors and memory bandwidth: it takes
18.9 % longer on average (arXiv 2507.03114, on A100, H100, MI250).
"""

EPSILON = 1e-30
"""Avoids division by zero."""

LINK_PARTS = ("tp_communication", "cp_communication", "ep_communication")
"""Exposed collectives of a micro-batch, during which links may be busy."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Seconds of a step by the parts of ``contract.estimate.TimeParts``, and seconds in which some collective runs, hidden or
    exposed.
    """

    time: Parts
    communication_seconds: Floats

    @property
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
    """The step as the slowest stage sees it, which paces the pipeline."""
    shared = _shared(inputs, factors)
    first = _stage_step(inputs.first, shared, inputs, factors)
    if (inputs.v.pp == 1).all():
        return replace(first, communication_seconds=np.minimum(first.communication_seconds, first.seconds))
    last = _stage_step(inputs.last, shared, inputs, factors)
    slower = last.seconds > first.seconds
    time = {name: np.where(slower, last.time[name], first.time[name]) for name in first.time}
    links = np.where(slower, last.communication_seconds, first.communication_seconds)
    return Step(time=time, communication_seconds=np.minimum(links, sum(time.values())))


def first_rank_time(inputs: StepInputs, factors: Factors) -> Parts:
    """Seconds of the step by part, as the first rank of a pipeline sees it."""
    return _stage_step(inputs.first, _shared(inputs, factors), inputs, factors).time


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """Seconds of a step by part, as ranks of a pipeline see it.

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
    inputs = layer_inputs(model, cluster, workload, stack, first, v, work)
    ranks = stage_inputs(stacked(tuple(kinds.values())), model, cluster, workload, stack, v, work)
    shared = _shared(inputs, calibration.factors)
    time = _stage_step(ranks, shared, inputs, calibration.factors).time
    whole = {name: np.broadcast_to(column, ranks.layers.shape) for name, column in time.items()}
    times = {kind: {name: column[number] for name, column in whole.items()} for number, kind in enumerate(kinds)}
    return RankSteps(**times, hop_seconds=shared.links.pp)


@dataclass(frozen=True, kw_only=True)
class _Shared:
    """Seconds of one micro-batch that all stages share: of a layer and of the head.

    waits: exposed launch seconds of a layer.
    hiding_share: share of a layer's computation that hides tensor and expert collectives on links that FSDP uses, too.
    """

    rates: Rates
    layer: LayerSeconds
    links: Collectives
    waits: Floats
    hiding_share: Floats
    head_matmul: Floats
    head_moved: Floats

    @property
    def head(self) -> Floats:
        """Seconds of the head and of the loss."""
        return self.head_matmul + self.head_moved + self.links.head


def _shared(inputs: LayerInputs, factors: Factors) -> _Shared:
    """Seconds that all stages share: their layers are alike."""
    rates = inputs.rates.calibrated(factors)
    layer = layer_seconds(inputs.layer, rates, factors)
    links, taken = _beside_layers(inputs, layer, factors)
    running = layer.forward + layer.backward + links.tp + links.cp + links.ep
    launch = factors.kernels * rates.launch_seconds
    waited = inputs.awaited_kernels * launch + inputs.expert_kernels * rates.launch_seconds
    return _Shared(
        rates=rates,
        layer=layer,
        links=links,
        waits=launch_seconds(inputs.kernels * launch, running, rates) + waited,
        hiding_share=taken,
        head_matmul=(1 + inputs.layer.backward_matmuls) * inputs.head.seconds(factors, rates.memory_rate),
        head_moved=inputs.head_moved_bytes / rates.memory_rate,
    )


def layer_step_seconds(inputs: LayerInputs, factors: Factors) -> Floats:
    """Seconds of one layer and micro-batch: computation, and waiting that no schedule hides."""
    shared = _shared(inputs, factors)
    layer, links = shared.layer, shared.links
    computed = layer.matmul + layer.attention + layer.memory_bound + layer.recompute + shared.waits
    return computed + links.tp + links.cp + links.ep


def _beside_layers(inputs: LayerInputs, layer: LayerSeconds, factors: Factors) -> tuple[Collectives, Floats]:
    """Collectives reduced to what is exposed of tensor and expert parallelism, and the share of a layer's computation that hides
    the rest, which cannot exceed that computation. Rings inside the node leave the ports between nodes to FSDP.
    """
    links = inputs.links
    hidden = links.tp * (1 - factors.tensor) + links.ep * (1 - factors.expert)
    computing = layer.forward + layer.backward
    fits = np.minimum(computing / np.maximum(hidden, EPSILON), 1.0)
    shown = replace(
        links,
        tp=links.tp * (1 - (1 - CONTENTION) * (1 - factors.tensor) * fits),
        ep=links.ep * (1 - (1 - CONTENTION) * (1 - factors.expert) * fits),
    )
    return shown, (1 - inputs.ports_free) * fits * hidden / computing


def _stage_step(stage: StageInputs, shared: _Shared, inputs: LayerInputs, factors: Factors) -> Step:
    v, rates, layer, links, n = inputs.v, shared.rates, shared.layer, shared.links, stage.layers
    host = offload_seconds(stage.host, rates, v)
    times = v.accumulation
    memory_bound = n * (layer.memory_bound + stage.copied_bytes / rates.memory_rate) + stage.weight_bytes / rates.memory_rate
    batch = {  # one micro-batch
        "matmul": n * layer.matmul + stage.has_head * shared.head_matmul,
        "attention": n * layer.attention,
        "memory_bound": memory_bound + stage.has_head * shared.head_moved,
        "recompute": n * layer.recompute,
        "launch": n * shared.waits + factors.micro_batch_seconds,
        "tp_communication": n * links.tp + stage.has_head * links.head,
        "cp_communication": n * links.cp,
        "ep_communication": n * links.ep,
    }
    busy: Floats = sum(batch.values(), start=np.zeros(1))
    data, copied = _data_parallel(stage, shared, host, inputs)
    computing = layer.forward + layer.backward
    hidden = np.maximum(_sharding_seconds(n, links, stage.links, v) - data, 0.0)
    data = data + inputs.slows_beside * CONTENTION * hidden * computing / (computing + shared.waits)
    others = _others(busy, stage.has_head * shared.head, shared.head, n, inputs.model_layers)
    bubble = others / np.maximum(busy, EPSILON) * _bubble(busy, n * layer.matmul / 3, v)
    time = {name: times * seconds for name, seconds in batch.items()}
    time |= {
        "dp_communication": data + stage.links.update,
        "pp_communication": _hops(links, times * (busy - sum(batch[name] for name in LINK_PARTS)) - hidden, v, rates),
        "bubble": np.where(v.streamed, _streamed_bubble(n, layer, shared.waits, v), bubble) if v.streamed.any() else bubble,
        "offload": copied
        + np.maximum(host.per_step - times * busy * rates.overlaps, 0.0)
        + _updates(host, stage, layer.backward + shared.waits, rates, v)
        + times * _away(n, shared, host, inputs),
        "optimizer": _device_update(stage, rates, factors) + factors.overhead_seconds,
    }
    waiting = factors.wait * np.log2(rates.nodes) * sum(time.values(), start=np.zeros(1))
    time["dp_communication"] = time["dp_communication"] + waiting
    return Step(time=time, communication_seconds=_link_seconds(n, links, stage.links, time, v))


def _device_update(stage: StageInputs, rates: Rates, factors: Factors) -> Floats:
    """Seconds of the device's own update."""
    return stage.update_bytes / rates.memory_rate + stage.update_matmuls.seconds(factors, rates.memory_rate)


def _updates(host: OffloadSeconds, stage: StageInputs, backward: Floats, rates: Rates, v: View) -> Floats:
    """Exposed seconds of the hosts' update: all, or with layers that are updated as soon as their last gradients are there, what
    the ``backward`` seconds of the layers leave, of streamed ones in the last round and else in the last micro-batch. At least
    what comes last: a layer, or the ends, which FSDP2 reduces together after the layers. A device that is the host hides none."""
    if not v.update_at_once.any():
        return host.update
    n = stage.layers
    beside = n * np.where(v.streamed, v.round_batches, 1.0) * backward * rates.overlaps
    left = np.maximum(host.update - beside, host.update * np.maximum(1 / np.maximum(n, 1.0), stage.last_reduced))
    return np.where(v.update_at_once, left, host.update)


def _data_parallel(stage: StageInputs, shared: _Shared, host: OffloadSeconds, inputs: LayerInputs) -> tuple[Floats, Floats]:
    """Exposed seconds of a step in data-parallel collectives and in the host copies that precede them.

    A layer's gather runs beside the layer before it, its reduction beside the next one; the first gather and the last reduction
    run beside nothing (arXiv 2304.11277, section 3.3); a stack that does not hide reductions runs none beside anything. Copies run
    beside collectives, which leave them what they don't take of the shared link.
    """
    v, n, rates, layer, links = inputs.v, stage.layers, shared.rates, shared.layer, shared.links
    hides, besides = inputs.hides_reductions, stage.links
    late = v.no_sync & (v.accumulation > 1)
    reduced = np.where(late, 0.0, links.reduce)
    gathers, going_back = links.gather_forward, links.gather_backward + reduced * hides
    forward = _beside(gathers, host.forward / np.maximum(n, 1.0), rates)
    backward = _beside(going_back, host.backward / np.maximum(n, 1.0), rates)
    waited = 1 - shared.hiding_share + shared.waits / (layer.forward + layer.backward)  # for the host to launch; collectives run on
    # ZeRO-1 gathers after its update
    room_forward = layer.forward * waited * rates.overlaps * np.where(_gathered_once(v), hides, 1.0)
    room_backward = layer.backward * waited * rates.overlaps
    onward = n * np.maximum(forward - room_forward, 0.0) + np.minimum(forward, room_forward)
    back = n * np.maximum(backward - room_backward, 0.0) + np.minimum(backward, room_backward)
    back = back + np.where(late, 0.0, besides.reduce) + (1 - hides) * n * reduced
    left = np.maximum(room_backward - backward, 0.0) * hides  # of a layer's backward pass: what nothing hides behind yet
    reduce = links.reduce
    at_last = n * np.maximum(reduce - left, 0.0) + np.minimum(reduce, left) + besides.reduce
    left = np.maximum(left - np.where(late, reduce, 0.0), 0.0)
    replica = besides.replica
    replicas = np.where(v.no_sync, 1.0, v.accumulation) * np.maximum(replica - n * left, replica / np.maximum(n, 1.0))
    counts = _gather_counts(v)
    carried = counts.forward * gathers + counts.backward * going_back
    copies = 1 - carried / np.maximum(counts.forward * forward + counts.backward * backward, EPSILON)
    total = counts.forward * onward + counts.backward * back + counts.ends * besides.gather
    return total * np.maximum(1 - copies, 0.0) + np.where(late, at_last, 0.0) + replicas, total * copies


def _away(n: Floats, shared: _Shared, host: OffloadSeconds, inputs: LayerInputs) -> Floats:
    """Exposed seconds of activation offload of one micro-batch on a stage. A pipeline stage that is not the last waits for the
    whole copy of its last layer, because other stages decide when its backward pass begins.
    """
    v, rates = inputs.v, shared.rates
    if not v.activations_away.any():
        return np.zeros_like(n)
    layer, links, taken = shared.layer, shared.links, rates.shared_link
    waited = (1 + shared.waits / (layer.forward + layer.backward)) * rates.overlaps
    copy, each = inputs.saved_bytes / rates.host_bytes_per_second, np.maximum(n, 1.0)
    going = waiting_seconds(copy, layer.forward * waited, taken * links.gather_forward + host.forward / each)
    others = taken * (links.gather_backward + links.reduce) + host.backward / each
    coming = waiting_seconds(copy, layer.backward * waited, others)
    return np.where(v.activations_away, n * (going + coming) + np.where(v.pp > 1, copy, 0.0), 0.0)


def _beside(collectives: Floats, copies: Floats, rates: Rates) -> Floats:
    """Seconds of concurrent collectives and host copies, where collectives take a share of the host link: over PCIe at full rate
    all of it, over NVLink none.
    """
    return np.where(copies > 0, np.maximum(collectives, rates.shared_link * collectives + copies), collectives)


@dataclass(frozen=True, kw_only=True)
class _GatherCounts:
    """Number of all-gathers of a step: of layers in forward and in backward passes, and of embedding and head."""

    forward: Floats
    backward: Floats
    ends: Floats


def _gather_counts(v: View) -> _GatherCounts:
    """One per micro-batch, or one per step if parameters stay gathered. torch's pipeline stages free no parameters after a
    backward pass but the last; of those freed after the forward pass, one all-gather serves a backward pass and the next
    forward pass, or all backward passes if these come last.
    """
    once = _gathered_once(v)
    each = np.where(once, 1.0, v.accumulation)
    kept = (v.pp > 1) & ~v.streamed & v.no_sync
    freed = kept & (v.reshard | v.reshard_subgroup)
    return _GatherCounts(
        forward=np.where(freed & ~v.breadth_first, 1.0, each),
        backward=np.where(freed & v.breadth_first, 1.0, each),
        ends=np.where(kept, 1.0, each),
    )


def _gathered_once(v: View) -> Mask:
    """Whether parameters are gathered for the first micro-batch only: neither resharded nor reduced before the last one
    (ZeRO-1).
    """
    return ~v.reshard & ~v.reshard_subgroup & v.no_sync


def _others(busy: Floats, own_head: Floats, head: Floats, n: Floats, layers: Number) -> Floats:
    """Seconds of one micro-batch on all other stages, for which this one waits while the pipeline fills and drains."""
    each = (busy - own_head) / np.maximum(n, 1.0)
    return np.maximum(each * layers + head - busy, 0.0)


def _bubble(busy: Floats, weights: Floats, v: View) -> Floats:
    """Idle seconds of a step per further rank; ``busy`` are the seconds of one micro-batch, ``weights`` of these compute weight
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
    idle = np.where(v.interleaved_zero_bubble, np.maximum(busy - 2 * weights, 0.0) / v.virtual_stages, idle)
    inputs = np.maximum(2 / 3 * busy - weights, 0.0)
    idle = np.where(v.zbv, np.maximum(inputs, 2 * (inputs - weights)) / 2, idle)
    return np.where(v.dual_pipe, np.maximum(busy - 2 * weights, 0.0) / 2, idle)


def _streamed_bubble(n: Floats, layer: LayerSeconds, waits: Floats, v: View) -> Floats:
    """Idle seconds of streamed stages. Stages of about a layer are assigned to the devices in turn, each for all micro-batches
    of a round: a device waits before its first and after its last stage for the others' first and last micro-batches. An
    asynchronous update lets the next step's first stages fill that time (arXiv 2604.27085). With fewer micro-batches than
    devices it also waits before each further stage until the first micro-batch has passed the other devices.
    """
    ends = np.where(v.async_optimizer_step, 0.0, v.pp - 1)
    between = np.maximum(n - 1, 0.0) * np.maximum(v.pp - v.round_batches, 0.0)
    idle: Floats = v.rounds * (ends + between) * (layer.forward + layer.backward + waits)
    return idle


def _hops(links: Collectives, room: Floats, v: View, rates: Rates) -> Floats:
    """Exposed seconds of transfers between stages: computation hides up to ``room`` seconds, but none while the pipeline fills."""
    own = transfer_count(v) * links.pp
    exposed = np.maximum(_filling(v) * links.pp + (1 - rates.overlaps) * own, 2 * (v.pp - 1) * links.pp + own - room)
    return np.where(v.pp > 1, exposed, 0.0)


def _filling(v: View) -> Floats:
    """Number of exposed transfers: before a stage's first and after its last micro-batch and, unless breadth first, at the turn
    of each round of pp micro-batches (simulated: 124 for 1F1B with 8 stages and 64 micro-batches).
    """
    rounds = np.where(v.breadth_first, 1.0, np.maximum(v.accumulation / v.pp, 1.0))
    return 2 * (v.pp - 1) * rounds


def transfer_count(v: View) -> Floats:
    """Number of a stage's own transfers: one forward and one backward per micro-batch and virtual stage."""
    return 2 * v.accumulation * v.virtual_stages


def _link_seconds(n: Floats, links: Collectives, besides: StageCollectives, time: Parts, v: View) -> Floats:
    """Seconds in which some collective runs."""
    hops = np.where(v.pp > 1, (_filling(v) + transfer_count(v)) * links.pp, 0.0)
    return sum(time[name] for name in LINK_PARTS) + (_sharding_seconds(n, links, besides, v) + hops)


def _sharding_seconds(n: Floats, links: Collectives, besides: StageCollectives, v: View) -> Floats:
    """Seconds of a step in which a collective between data-parallel ranks runs, hidden or exposed."""
    reduced = n * links.reduce + besides.reduce + besides.replica
    return gather_seconds(n, links, besides, v) + besides.update + np.where(v.no_sync, 1.0, v.accumulation) * reduced


def gather_seconds(n: Floats, links: Collectives, besides: StageCollectives, v: View) -> Floats:
    """Seconds of a step in which a stage of ``n`` layers gathers parameters."""
    counts = _gather_counts(v)
    layers = counts.forward * links.gather_forward + counts.backward * links.gather_backward
    return n * layers + counts.ends * besides.gather
