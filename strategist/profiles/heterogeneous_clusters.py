"""Heterogeneous clusters: nodes differ, and collectives run at the speed of the slowest."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from strategist.contract.cluster import Cluster, Device, Link, NodeGroup
from strategist.errors import InputError
from strategist.units import show_bytes

EQUAL_TOLERANCE = 0.02
"""Share by which two figures may differ and still count as equal."""


def join_clusters(name: str, members: Sequence[tuple[Cluster, float]]) -> Cluster:
    """One cluster with the given clusters as its groups, each with the speed of its devices.

    Raises:
        InputError: their nodes differ in the number or kind of devices, or a speed is invalid.
    """
    clusters = [cluster for cluster, _ in members]
    sizes, kinds = sorted({item.gpus_per_node for item in clusters}), sorted({item.device.kind for item in clusters})
    if len(sizes) > 1:
        law = "a mesh needs as many devices in each node"
        raise InputError(f"groups with {' and '.join(map(str, sizes))} devices a node", law, "write gpus_per_node next to groups")
    if len(kinds) > 1:
        raise InputError(f"groups of {' and '.join(kinds)}", "one program runs on all ranks", "describe clusters of their own")
    groups = tuple(
        NodeGroup(nodes=item.nodes, device=item.device, intra=item.intra, inter=item.inter, speed=speed) for item, speed in members
    )
    hosts = [item.host_memory_bytes for item in clusters]
    return replace(
        clusters[0],
        name=name,
        nodes=sum(group.nodes for group in groups),
        host_bytes_per_second=min(item.host_bytes_per_second for item in clusters),
        host_optimizer_bytes_per_second=min(item.host_optimizer_bytes_per_second for item in clusters),
        host_memory_bytes=None if None in hosts else min(size for size in hosts if size is not None),
        assumed=tuple(dict.fromkeys(note for item in clusters for note in item.assumed)),
        **_slowest_fields(groups),
    )


def node_differences(cluster: Cluster) -> Iterator[str]:
    """Differences between the nodes and their consequences, a sentence each; none if the nodes are equal."""
    groups, gpus_per_node = cluster.groups, cluster.gpus_per_node
    rates = [sustained_flops(group.scaled_by_speed) for group in groups]
    for slowest, _ in _slowest_and_others(groups, rates):
        share = min(rates) / max(rates)
        yield f"{_count(slowest, cluster)} {_kind(slowest)}: they pace the others, with {share:.0%} of the matmuls of the fastest."
    for slowest, others in _slowest_and_others(groups, [group.device.usable_memory_bytes for group in groups]):
        largest = max(group.device.usable_memory_bytes for group in others)
        smallest = show_bytes(slowest[0].device.usable_memory_bytes)
        yield f"{_count(slowest, cluster)} hold {smallest} each, the largest {show_bytes(largest)}."
    for name, verb in (("inter", "reach other nodes"), *([("intra", "reach each other")] if gpus_per_node > 1 else [])):
        links = [getattr(group, name).bytes_per_second for group in groups]
        for slowest, _ in _slowest_and_others(groups, links):
            yield (
                f"{_count(slowest, cluster)} {verb} at {min(links) / 1e9:.3g} GB/s, others at up to {max(links) / 1e9:.3g}:"
                " collectives go at the pace of the slowest."
            )


def _slowest_and_others(groups: Sequence[NodeGroup], figures: Sequence[float]) -> Iterator[tuple[list[NodeGroup], list[NodeGroup]]]:
    """The groups with the lowest figure, and the others; nothing if all figures are equal."""
    slowest = [group for group, figure in zip(groups, figures, strict=True) if figure <= min(figures) * (1 + EQUAL_TOLERANCE)]
    if len(slowest) < len(groups):
        yield slowest, [group for group in groups if group not in slowest]


def _count(groups: Sequence[NodeGroup], cluster: Cluster) -> str:
    return f"{sum(group.nodes for group in groups) * cluster.gpus_per_node} of {cluster.devices} devices"


def _kind(groups: Sequence[NodeGroup]) -> str:
    names = " and ".join(dict.fromkeys(group.device.name for group in groups))
    speeds = " and ".join(dict.fromkeys(f"{group.speed:.0%}" for group in groups if group.speed < 1))
    return f"are {names}" + (f" that run at {speeds} of their speed" if speeds else "")


def without_group(cluster: Cluster, group: NodeGroup) -> Cluster:
    """The cluster without one of its groups."""
    remaining = tuple(item for item in cluster.groups if item is not group)
    name = f"{cluster.name} without its {group.nodes} x {cluster.gpus_per_node} {group.device.name}"
    return replace(cluster, name=name, nodes=cluster.nodes - group.nodes, **_slowest_fields(remaining))


def _slowest_fields(groups: tuple[NodeGroup, ...]) -> dict[str, Any]:
    """Fields of a cluster that follow from its groups; a single group at full speed needs no groups."""
    return {
        "groups": groups if len(groups) > 1 or groups[0].speed < 1 else (),
        "device": _slowest_device(groups),
        "intra": _slowest_link([group.intra for group in groups]),
        "inter": _slowest_link([group.inter for group in groups]),
    }


def _slowest_device(groups: tuple[NodeGroup, ...]) -> Device:
    """A device with the least memory, the slowest matmuls and the lowest memory bandwidth of all; price and power are means."""
    devices = [group.scaled_by_speed for group in groups]
    slowest_memory = min(devices, key=lambda device: device.memory_bytes_per_second * device.memory_efficiency)
    smallest = min(devices, key=lambda device: device.usable_memory_bytes)
    return replace(
        min(devices, key=sustained_flops),
        name="+".join(dict.fromkeys(device.name for device in devices)),
        memory_bytes=smallest.memory_bytes,
        usable_memory_bytes=smallest.usable_memory_bytes,
        memory_bytes_per_second=slowest_memory.memory_bytes_per_second,
        memory_efficiency=slowest_memory.memory_efficiency,
        indexed_values_per_second=min((rate for item in devices if (rate := item.indexed_values_per_second)), default=None),
        launch_seconds=max(device.launch_seconds for device in devices),
        allocator_slack=max(device.allocator_slack for device in devices),
        overlaps=all(device.overlaps for device in devices),
        power_watts=_mean([(group.nodes, group.device.power_watts) for group in groups]),
        price_per_hour=_mean([(group.nodes, group.device.price_per_hour) for group in groups]),
    )


def sustained_flops(device: Device) -> float:
    """FLOP/s of large matmuls in bf16 or fp16, whichever is faster."""
    return max(device.peak("bf16"), device.peak("fp16")) * device.matmul.points[-1][1]


def _slowest_link(links: Sequence[Link]) -> Link:
    slowest = min(links, key=lambda link: link.bytes_per_second)
    pair = min(link.pair_bytes_per_second for link in links)
    return replace(slowest, pair_bytes_per_second=pair, latency_seconds=max(link.latency_seconds for link in links))


def _mean(figures: Sequence[tuple[int, float | None]]) -> float | None:
    """The mean weighted by nodes; None if a figure is unknown."""
    known = [(nodes, figure) for nodes, figure in figures if figure is not None]
    if len(known) < len(figures):
        return None
    return sum(nodes * figure for nodes, figure in known) / sum(nodes for nodes, _ in known)
