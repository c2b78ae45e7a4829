"""Process groups: the ranks of each axis, bandwidth and latency of the links between them, and seconds of a group's collectives."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from strategist.contract.cluster import UNDEGRADED_NODES, Cluster, Link
from strategist.contract.stack import Stack
from strategist.cost.candidate_arrays import Floats, View
from strategist.frozen import frozen


@frozen
class Group:
    """A process group: number of ranks, bus bandwidth of all-reduces (``reduce_bytes_per_second``) and of other collectives, and
    seconds of one hop between neighbours, averaged over the ring.

    tree_seconds, network_seconds: latency of a double binary tree, up and down: of its hops inside a node, and between nodes.
    """

    ranks: Floats
    bytes_per_second: Floats
    reduce_bytes_per_second: Floats
    hop_seconds: Floats
    tree_seconds: Floats
    network_seconds: Floats

    def gather(self, size: Floats, calls: Floats | float = 1.0) -> Floats:
        """Seconds of all-gathers or reduce-scatters with ``size`` bytes in total, in ``calls`` collectives: rings of n - 1 hops,
        each with 1 / n of the bytes (nccl-tests, PERFORMANCE.md).
        """
        seconds: Floats = (self.ranks - 1) * (size / self.ranks / self.bytes_per_second + calls * self.hop_seconds)
        return seconds

    def reduce(self, size: Floats, calls: Floats | float = 1.0) -> Floats:
        """Seconds of all-reduces with ``size`` bytes in total, in ``calls`` collectives, each by the faster of a ring, which is a
        reduce-scatter and an all-gather, and a double binary tree (NCCL 2.4).

        Between nodes a tree forwards a message in pieces. With T the seconds of its bytes and L those of its hops, pieces of the
        best size take (sqrt(T) + sqrt(L))^2 (two-tree algorithms: Sanders, Speck and Traff, Parallel Computing 35, 2009).
        """
        transfer = 2 * (self.ranks - 1) / self.ranks * size / calls / self.reduce_bytes_per_second
        ring = 2 * (self.ranks - 1) * self.hop_seconds
        tree = self.tree_seconds + self.network_seconds + 2 * np.sqrt(transfer * self.network_seconds)
        seconds: Floats = calls * (transfer + np.minimum(ring, tree))
        return seconds


def with_stack_links(cluster: Cluster, stack: Stack) -> Cluster:
    """The cluster with the links that a stack's collectives use: copy engines use each device's own host link fully, rings of
    kernels without peer access do not.
    """
    if stack.collectives != "copies" or cluster.intra.fabric != "pcie_via_host":
        return cluster
    rate = max(cluster.intra.bytes_per_second, cluster.host_bytes_per_second)
    return replace(cluster, intra=replace(cluster.intra, bytes_per_second=rate, reduce_bytes_per_second=None))


def group(ranks: Floats, stride: Floats, cluster: Cluster) -> Group:
    """Rates and hops of a process group whose ranks are ``stride`` apart. Across nodes, the members in one node share its network
    ports, and a ring has one hop between neighbouring nodes.
    """
    intra, inter = cluster.intra, cluster.inter
    ranks = np.maximum(ranks, 1.0)
    within_node = ranks * stride <= cluster.gpus_per_node
    ranks_per_node = np.where(within_node, ranks, np.clip(cluster.gpus_per_node / stride, 1.0, ranks))
    rate = _intra_rate(ranks_per_node, intra)
    reduce_rate = rate * ((intra.reduce_bytes_per_second or intra.bytes_per_second) / intra.bytes_per_second)
    tree = 2 * np.minimum(ranks_per_node - 1, 2 * np.log2(ranks_per_node)) * intra.latency_seconds
    if within_node.all():  # as on one node
        return Group(
            ranks=ranks,
            bytes_per_second=rate,
            reduce_bytes_per_second=reduce_rate,
            hop_seconds=np.full_like(ranks, intra.latency_seconds),
            tree_seconds=tree,
            network_seconds=np.zeros_like(ranks),
        )
    nodes = ranks / ranks_per_node
    undegraded_share = (1 - inter.lost_per_doubling) ** np.log2(np.maximum(nodes / UNDEGRADED_NODES, 1.0))
    inter_rate = np.minimum(rate, inter.bytes_per_second * ranks_per_node * undegraded_share)
    hops = ((nodes - 1) * inter.latency_seconds + (ranks - nodes) * intra.latency_seconds) / np.maximum(ranks - 1, 1.0)
    return Group(
        ranks=ranks,
        bytes_per_second=np.where(within_node, rate, inter_rate),
        reduce_bytes_per_second=np.where(within_node, reduce_rate, inter_rate),
        hop_seconds=np.where(within_node, intra.latency_seconds, hops),
        tree_seconds=tree,
        network_seconds=2 * np.log2(nodes) * inter.latency_seconds,
    )


def _intra_rate(ranks_per_node: Floats, intra: Link) -> Floats:
    """Bus bandwidth of ``ranks_per_node`` ranks in a node: all of a switched link; in a mesh n - 1 of a device's links (MI300X: 48
    GB/s with two devices, 313 with eight, github.com/stas00/ml-engineering 744d01e).
    """
    if not intra.meshed_devices:
        return np.full_like(ranks_per_node, intra.bytes_per_second)
    share = (ranks_per_node - 1) / (intra.meshed_devices - 1)
    mesh_rate: Floats = np.where(
        ranks_per_node > 1, np.maximum(intra.pair_bytes_per_second, intra.bytes_per_second * share), np.inf
    )
    return np.minimum(mesh_rate, intra.bytes_per_second)


@frozen
class Groups:
    """The process groups of a table of candidates, each computed when it is first read."""

    cluster: Cluster
    v: View

    @cached_property
    def tensor(self) -> Group:
        """Tensor parallelism, the innermost axis."""
        return group(self.v.tp, np.ones_like(self.v.tp), self.cluster)

    @cached_property
    def context(self) -> Group:
        return group(self.v.cp, self.v.tp, self.cluster)

    @cached_property
    def expert(self) -> Group:
        return group(self.v.ep, self.v.etp, self.cluster)

    @cached_property
    def fsdp(self) -> Group:
        """Ranks that shard parameters."""
        return group(self.v.fsdp_ranks, self.v.tp, self.cluster)

    @cached_property
    def resharding(self) -> Group:
        """Ranks within which parameters stay gathered."""
        return group(np.minimum(self.v.reshard_group, self.v.fsdp_ranks), self.v.tp, self.cluster)

    @cached_property
    def experts_fsdp(self) -> Group:
        """Ranks that shard experts which ep or etp split: the remaining ones of fsdp x tp, none if ep spans them all."""
        split = self.v.ep * self.v.etp
        return group(self.v.fsdp_ranks * self.v.tp / split, split, self.cluster)

    @cached_property
    def replicas(self) -> Group:
        inner_stages = np.where(self.v.replicas_outermost, self.v.pp, 1.0)
        return group(self.v.dp_replicate, self.v.tp * self.v.fsdp_ranks * inner_stages, self.cluster)


def groups_of(cluster: Cluster, stack: Stack, v: View) -> Groups:
    """The groups of candidates on a cluster with the links that a stack's collectives use."""
    return Groups(cluster=with_stack_links(cluster, stack), v=v)
