"""Compulsory traffic of a step: bytes through the links of the mean device, with NCCL's best algorithm for the fabric."""

from itertools import pairwise
from math import prod

from strategist.bound.compulsory_work import BoundInputs, embedding_gathers_per_step, gathers_per_step
from strategist.bound.rates import Rates
from strategist.contract.cluster import Cluster
from strategist.contract.layout import Layout
from strategist.contract.model import MoEShape
from strategist.contract.pipeline_stages import rank_of_stage
from strategist.frozen import frozen


@frozen
class Traffic:
    """Bytes through a device's links in one direction: inside the node, and through its share of the node's network ports."""

    intra: float = 0.0
    inter: float = 0.0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(intra=self.intra + other.intra, inter=self.inter + other.inter)

    def times(self, count: float) -> "Traffic":
        """Traffic of ``count`` repetitions."""
        return Traffic(intra=self.intra * count, inter=self.inter * count)


@frozen
class Group:
    """A process group: number of ranks, and how many of them (``members``) share a node."""

    ranks: float
    members: float
    rates: Rates

    def all_gather(self, size: float) -> Traffic:
        """Traffic of an all-gather or reduce-scatter of ``size`` bytes in all: each rank receives the (n - 1) / n that it lacks.

        Where several ranks share a node, each receives only its part through the network ports and passes it on inside the node (a
        ring).
        """
        sent_bytes = (self.ranks - 1) / self.ranks * size
        if self.members >= self.ranks:
            return Traffic(intra=sent_bytes)
        return Traffic(intra=sent_bytes * (self.members - 1) / self.members, inter=sent_bytes / self.members)

    def all_reduce(self, size: float) -> Traffic:
        """Traffic of an all-reduce of ``size`` bytes.

        A ring moves them twice, switches that reduce once; between nodes, a tree receives twice what each node lacks.
        """
        in_one_node = self.members >= self.ranks
        ring = 2 * (self.ranks - 1) / self.ranks * size
        if in_one_node:
            switch_bytes = (self.ranks + 1) / self.ranks * size if self.ranks > 1 else 0.0
            return Traffic(intra=min(ring, switch_bytes) if self.rates.in_switch_intra else ring)
        nodes = self.ranks / self.members
        inter_bytes = (1.0 if self.rates.in_switch_inter else 2.0) * (nodes - 1) / nodes * size / self.members
        return Traffic(intra=0.0, inter=inter_bytes)


def step_traffic(s: BoundInputs, cluster: Cluster, rates: Rates) -> Traffic:
    """Traffic of all collectives of a step on the mean device; they share its network ports."""
    return sum(traffic_by_axis(s, cluster, rates).values(), Traffic())


def traffic_by_axis(s: BoundInputs, cluster: Cluster, rates: Rates) -> dict[str, Traffic]:
    """Traffic of a step on the mean device by mesh axis. ``dp_shard`` includes the ``cp`` ranks, which share its shards."""
    return {
        "dp_shard": _sharded_data_parallel(s, cluster, rates),
        "dp_replicate": _replicated_data_parallel(s, cluster, rates),
        "tp": _tensor(s, cluster, rates),
        "cp": _context(s, cluster, rates),
        "ep": _expert(s, cluster),
        "pp": _pipeline(s, cluster),
    }


def _group(ranks: float, stride: float, cluster: Cluster, rates: Rates) -> Group:
    """Process group of ranks that are ``stride`` apart."""
    return Group(ranks=ranks, members=min(max(cluster.gpus_per_node / stride, 1.0), ranks), rates=rates)


def _gradient_bytes(s: BoundInputs) -> float:
    """Bytes per parameter of a gradient as it is reduced; 0 for frozen weights."""
    reduce_bytes = 2.0 if s.candidate.knobs.reduce_dtype == "bf16" else 4.0
    return 0.0 if s.frozen else min(reduce_bytes, s.stack.gradient_bytes)


def _sharded_data_parallel(s: BoundInputs, cluster: Cluster, rates: Rates) -> Traffic:
    """FSDP: all-gathers of parameters and reduce-scatters of gradients.

    Frozen weights are also gathered, unless every rank keeps whole copies.
    """
    layout, knobs, gradient_bytes = s.candidate.layout, s.candidate.knobs, _gradient_bytes(s)
    if layout.fsdp_ranks == 1 or knobs.offload == "streamed":
        return Traffic()
    gathers, reductions = gathers_per_step(s), 1 if knobs.no_sync else s.micro_batches
    gathered_bytes = 1.0 if knobs.float8_all_gather else s.compute_bytes
    gathered_bytes = min(gathered_bytes, 0.5) if s.workload.train == "qlora" else gathered_bytes
    if s.frozen and s.stack.memory_traits.parameters == "copies" and knobs.reshard_after_forward is False:
        gathered_bytes = 0.0  # no update changes the whole copies
    embedding_and_head = _group(layout.fsdp_ranks, layout.tp, cluster, rates).all_gather(s.embedding_and_head / layout.tp)
    layers = _layer_gathers(s, cluster, rates).times(gathers * gathered_bytes + reductions * gradient_bytes)
    return layers + embedding_and_head.times(embedding_gathers_per_step(s) * gathered_bytes + reductions * gradient_bytes)


def _replicated_data_parallel(s: BoundInputs, cluster: Cluster, rates: Rates) -> Traffic:
    """DDP and the replicas of HSDP: all-reduces of the gradient shard of a rank."""
    layout, knobs, gradient_bytes = s.candidate.layout, s.candidate.knobs, _gradient_bytes(s)
    if layout.dp_replicate == 1 or knobs.comm_hook == "powersgd":
        return Traffic()
    inner_stages = layout.pp if layout.axis_order[0] == "dp_replicate" else 1
    replicas = _group(layout.dp_replicate, layout.tp * layout.fsdp_ranks * inner_stages, cluster, rates)
    sent_bytes = min(gradient_bytes, 2.0) if knobs.comm_hook != "none" else gradient_bytes
    return replicas.all_reduce(s.shard * sent_bytes).times(1 if knobs.no_sync else s.micro_batches)


def _layer_gathers(s: BoundInputs, cluster: Cluster, rates: Rates) -> Traffic:
    """An all-gather or reduce-scatter of all layers of a rank, at one byte per parameter.

    Experts that are split by ep and etp are sharded over the remaining ranks.
    """
    layout = s.candidate.layout
    fsdp, split = _group(layout.fsdp_ranks, layout.tp, cluster, rates), layout.ep * layout.etp
    dense, experts = s.layers * s.dense_per_layer / layout.tp, s.layers * s.experts_per_layer / split
    if split == 1:
        return fsdp.all_gather(dense + experts)
    expert_group = _group(layout.fsdp_ranks * layout.tp / split, split, cluster, rates)
    return fsdp.all_gather(dense) + expert_group.all_gather(experts)


def _per_layer(s: BoundInputs, traffic: Traffic) -> Traffic:
    """Traffic of one layer and one micro-batch, times all layers and micro-batches of a rank."""
    return traffic.times(s.micro_batches * s.layers)


def _activation_bytes(s: BoundInputs) -> float:
    """Bytes of the hidden states of one micro-batch on one rank."""
    return s.tokens * s.model.hidden_size * s.compute_bytes


def _tensor(s: BoundInputs, cluster: Cluster, rates: Rates) -> Traffic:
    """Tensor parallelism: two all-reduces of activations forward and two backward in each layer (arXiv 1909.08053, section 3), one
    each way at embedding and head.

    Full recomputation repeats the first forward one; with sequence parallelism (arXiv 2205.05198) sharded inputs are gathered
    again, too.

    Experts that tp does not split need no all-reduce: tp ranks split their tokens, and all-gather the outputs unless sequence
    parallelism keeps them sharded.
    """
    layout, knobs, model = s.candidate.layout, s.candidate.knobs, s.model
    if layout.tp == 1:
        return Traffic()
    one_reduction = _group(layout.tp, 1, cluster, rates).all_reduce(_activation_bytes(s))
    moe_share = model.moe_layers / model.layers if layout.etp == 1 else 0.0
    shared = 0.5 if knobs.sequence_parallel else 0.0
    recomputed_sums = 1.0 + shared * (1 - moe_share) if knobs.recompute == "full" else 0.0
    sums = 4 - moe_share * (1 + 2 * shared)
    return _per_layer(s, one_reduction.times(sums + recomputed_sums)) + one_reduction.times(2 * s.micro_batches / layout.pp)


def _context(s: BoundInputs, cluster: Cluster, rates: Rates) -> Traffic:
    """Context parallelism: keys and values forward, their gradients backward (arXiv 2407.21783, section 3.3.2)."""
    layout = s.candidate.layout
    if layout.cp == 1:
        return Traffic()
    keys = s.tokens * layout.cp * s.model.key_value_width / layout.tp * s.compute_bytes
    return _per_layer(s, _group(layout.cp, layout.tp, cluster, rates).all_gather(keys).times(2))


def _expert(s: BoundInputs, cluster: Cluster) -> Traffic:
    """Expert parallelism: all-to-alls of tokens to their experts and back, forward and backward, in each MoE layer.

    Full recomputation repeats the dispatch.
    """
    layout, moe = s.candidate.layout, s.model.moe
    if moe is None or layout.ep == 1:
        return Traffic()
    activation = _activation_bytes(s) / (1 if layout.etp > 1 else layout.tp)
    exchanges = 5 if s.candidate.knobs.recompute == "full" else 4
    return _per_layer(s, _expert_dispatch(activation, layout, moe, cluster).times(exchanges * s.model.moe_layers / s.model.layers))


def _expert_dispatch(activation: float, layout: Layout, moe: MoEShape, cluster: Cluster) -> Traffic:
    """Traffic of one dispatch with even routing: a token is sent once to each other node, or within one node once to each other
    rank, that holds one of its experts (arXiv 2412.19437, section 3.2.2).
    """
    nodes = max(layout.ep * layout.etp / cluster.gpus_per_node, 1.0)
    peers_in_node = min(float(layout.ep), cluster.gpus_per_node / layout.etp)
    inter_share = _parts_with_chosen_expert(nodes, moe) * (nodes - 1) / nodes
    intra_share = (
        0.0
        if peers_in_node < 2 or nodes > 1
        else _parts_with_chosen_expert(peers_in_node, moe) * (peers_in_node - 1) / peers_in_node
    )
    return Traffic(intra=activation * intra_share, inter=activation * inter_share)


def _parts_with_chosen_expert(parts: float, moe: MoEShape) -> float:
    """Expected number of ``parts`` (equal parts of the experts) that hold one of a token's experts, drawn without replacement."""
    others = moe.experts - moe.experts / parts
    missed_share = prod(max(others - drawn, 0.0) / (moe.experts - drawn) for drawn in range(moe.experts_per_token))
    return parts * (1 - missed_share)


def _pipeline(s: BoundInputs, cluster: Cluster) -> Traffic:
    """Pipeline parallelism: activations to the next stage and gradients to the previous one, for the rank that receives most."""
    layout, knobs = s.candidate.layout, s.candidate.knobs
    if layout.pp == 1 or knobs.offload == "streamed":
        return Traffic()
    stride = cluster.devices // layout.pp if layout.axis_order[0] == "pp" else layout.fsdp_ranks * layout.tp
    spans_nodes = layout.pp * stride > cluster.gpus_per_node
    inter_share = min(stride / cluster.gpus_per_node, 1.0) if spans_nodes else 0.0
    shards = layout.tp if knobs.sequence_parallel else 1
    received = _activation_bytes(s) / shards * s.micro_batches * _max_received(s)
    return Traffic(intra=received * (1 - inter_share), inter=received * inter_share)


def _max_received(s: BoundInputs) -> int:
    """Messages per micro-batch to the rank that receives most: activations for each of its stages whose predecessor is on another
    rank, gradients for each whose successor is.
    """
    layout, knobs = s.candidate.layout, s.candidate.knobs
    stages = layout.pp * knobs.pp_virtual_stages
    ranks = [rank_of_stage(knobs.pp_schedule, layout.pp, stages, stage) for stage in range(stages)]
    received = [0] * layout.pp
    for source, target in pairwise(ranks):
        if source != target:
            received[target] += 1
            received[source] += 1
    return max(received)
