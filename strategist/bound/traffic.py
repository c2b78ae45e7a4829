"""Compulsory traffic of a step: bytes through the links of the mean device, by the best algorithm that NCCL has on the fabric."""

from dataclasses import dataclass

from strategist.bound.rates import Rates
from strategist.bound.work import Setting, gathers_of
from strategist.contract.cluster import Cluster
from strategist.contract.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes through a device's links in one direction: inside the node, and through its share of the node's ports."""

    intra: float = 0.0
    inter: float = 0.0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(intra=self.intra + other.intra, inter=self.inter + other.inter)

    def times(self, count: float) -> "Traffic":
        """As often as ``count``."""
        return Traffic(intra=self.intra * count, inter=self.inter * count)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that communicate: how many, and how many of them share a node."""

    ranks: float
    members: float
    rates: Rates

    def gathered(self, size: float) -> Traffic:
        """An all-gather or a reduce-scatter of ``size`` bytes in all: each rank takes in what it lacks, n - 1 shares of n. Where
        several are in a node one of them takes it in for all, so each uses the ports for its part only (a ring)."""
        moved = (self.ranks - 1) / self.ranks * size
        if self.members >= self.ranks:
            return Traffic(intra=moved)
        return Traffic(intra=moved * (self.members - 1) / self.members, inter=moved / self.members)

    def reduced(self, size: float) -> Traffic:
        """An all-reduce of ``size`` bytes: a ring moves them twice, switches that reduce once; over nodes a tree takes in twice
        what each node lacks."""
        inside = self.members >= self.ranks
        ring = 2 * (self.ranks - 1) / self.ranks * size
        if inside:
            once = (self.ranks + 1) / self.ranks * size if self.ranks > 1 else 0.0
            return Traffic(intra=min(ring, once) if self.rates.in_switch_intra else ring)
        nodes = self.ranks / self.members
        across = (1.0 if self.rates.in_switch_inter else 2.0) * (nodes - 1) / nodes * size / self.members
        return Traffic(intra=0.0, inter=across)


def step_traffic(s: Setting, cluster: Cluster, rates: Rates) -> Traffic:
    """All collectives of a step, on the mean device, which shares its ports among all of them."""
    return _data_parallel(s, cluster, rates) + _inside_layers(s, cluster, rates) + _between_stages(s, cluster)


def _group(ranks: float, stride: float, cluster: Cluster, rates: Rates) -> Group:
    """Ranks ``stride`` apart."""
    return Group(ranks=ranks, members=min(max(cluster.gpus_per_node / stride, 1.0), ranks), rates=rates)


def _data_parallel(s: Setting, cluster: Cluster, rates: Rates) -> Traffic:
    """Parameters gathered and gradients reduced. Frozen weights are gathered, too, where shards are all that a rank keeps, but
    never reduced."""
    layout, knobs = s.candidate.layout, s.candidate.knobs
    reduced = 2.0 if knobs.reduce_dtype == "bf16" else 4.0
    trained = 0.0 if s.frozen else min(reduced, s.stack.gradient_bytes)
    total = Traffic()
    if layout.fsdp_ranks > 1 and knobs.offload != "streamed":
        gathers, reductions = gathers_of(s), 1 if knobs.postpone_gradient_sync else s.micro_batches
        travels = 1.0 if knobs.float8_all_gather else s.compute_bytes
        travels = min(travels, 0.5) if s.workload.train == "qlora" else travels
        if s.frozen and s.stack.keeps.parameters == "copies" and knobs.reshard_after_forward is False:
            travels = 0.0  # whole copies that nothing changes
        ends = _group(layout.fsdp_ranks, layout.tp, cluster, rates).gathered(s.ends / layout.tp)
        kept = gathers / 2 if knobs.reshard_after_forward is True else gathers  # FSDP2's root is not freed in between
        total += _sharded(s, cluster, rates).times(gathers * travels + reductions * trained)
        total += ends.times(kept * travels + reductions * trained)
    if layout.dp_replicate > 1 and knobs.comm_hook != "powersgd":
        within = layout.pp if layout.axis_order[0] == "dp_replicate" else 1
        replicas = _group(layout.dp_replicate, layout.tp * layout.fsdp_ranks * within, cluster, rates)
        hooked = min(trained, 2.0) if knobs.comm_hook != "none" else trained
        total += replicas.reduced(s.shard * hooked).times(1 if knobs.postpone_gradient_sync else s.micro_batches)
    return total


def _sharded(s: Setting, cluster: Cluster, rates: Rates) -> Traffic:
    """An all-gather or reduce-scatter of all layers that a rank computes with, a byte a parameter; experts that ep and etp cut are
    shards of the ranks that these leave."""
    layout = s.candidate.layout
    fsdp, split = _group(layout.fsdp_ranks, layout.tp, cluster, rates), layout.ep * layout.etp
    dense, experts = s.layers * s.dense_per_layer / layout.tp, s.layers * s.experts_per_layer / split
    if split == 1:
        return fsdp.gathered(dense + experts)
    apart = _group(layout.fsdp_ranks * layout.tp / split, split, cluster, rates)
    return fsdp.gathered(dense) + apart.gathered(experts)


def _inside_layers(s: Setting, cluster: Cluster, rates: Rates) -> Traffic:
    """Tensor, context and expert parallelism: what each layer exchanges for each micro-batch."""
    layout, knobs, m = s.candidate.layout, s.candidate.knobs, s.model
    again = 1.0 if knobs.recompute == "full" else 0.0
    activation = s.tokens * m.hidden_size * s.compute_bytes
    each = Traffic()
    if layout.tp > 1:  # two sums forward, two backward (arXiv 1909.08053, section 3), and the first again
        each += _group(layout.tp, 1, cluster, rates).reduced(activation).times(4 + again)
    if layout.cp > 1:  # keys and values forward, their gradients backward (arXiv 2407.21783, section 3.3.2)
        keys = s.tokens * layout.cp * m.key_value_width / layout.tp * s.compute_bytes
        each += _group(layout.cp, layout.tp, cluster, rates).gathered(keys).times(2)
    if m.moe is not None and layout.ep > 1:
        spread = 1 if layout.etp > 1 else layout.tp
        share = m.moe_layers / m.layers
        each += _exchanged(activation / spread, layout, m.moe.experts_per_token, cluster).times((4 + again) * share)
    return each.times(s.micro_batches * s.layers)


def _exchanged(activation: float, layout: Layout, chosen: int, cluster: Cluster) -> Traffic:
    """Tokens on their way to experts, with even routing: once to each other node, and once to each other rank, that has one of the
    ``chosen`` (arXiv 2412.19437, section 3.2.2)."""
    nodes = max(layout.ep * layout.etp / cluster.gpus_per_node, 1.0)
    inside = min(float(layout.ep), cluster.gpus_per_node / layout.etp)
    across = _reached(nodes, chosen) * (nodes - 1) / nodes
    within = 0.0 if inside < 2 or nodes > 1 else _reached(inside, chosen) * (inside - 1) / inside
    return Traffic(intra=activation * within, inter=activation * across)


def _reached(parts: float, chosen: int) -> float:
    """Of so many equal parts of all experts, how many hold some of those that a token chooses at random."""
    return parts * (1 - (1 - 1 / parts) ** chosen)


def _between_stages(s: Setting, cluster: Cluster) -> Traffic:
    """Activations to the next stage and gradients to the one before. Where each stage is on other nodes, a stage in the middle
    takes in both; the first and the last one of them."""
    layout, knobs = s.candidate.layout, s.candidate.knobs
    stride = cluster.devices // layout.pp if layout.axis_order[0] == "pp" else layout.fsdp_ranks * layout.tp
    if layout.pp == 1 or knobs.offload == "streamed" or stride < cluster.gpus_per_node:
        return Traffic()
    shards = layout.tp if knobs.sequence_parallel else 1
    size = s.tokens * s.model.hidden_size * s.compute_bytes / shards
    directions = 2 if layout.pp > 2 else 1
    return Traffic(inter=size * s.micro_batches * directions)
