"""Fewer devices: cheaper per token where communication grows faster than throughput."""

from collections.abc import Iterator

from strategist.profiles.cluster import scaled
from strategist.profiles.heterogeneous_clusters import without_group
from strategist.profiles.situation import Situation, on_cluster

SAVING_OBJECTIVES = {"cost": "costs", "energy": "needs"}
"""Objectives for which devices may stay idle, with their verb."""


def with_fewer_devices(situation: Situation) -> Iterator[Situation]:
    """The situation on half of its nodes, on half of those, and so on; then on part of a node, down to one device. With
    heterogeneous nodes, on all but one kind.

    Nothing if the objective prefers all devices.
    """
    if situation.cluster.groups:
        groups = (
            situation.cluster.groups
            if situation.request.objective in SAVING_OBJECTIVES and len(situation.cluster.groups) > 1
            else ()
        )
        yield from (on_cluster(situation, without_group(situation.cluster, group)) for group in groups)
        return
    nodes, gpus_per_node = situation.cluster.nodes, situation.cluster.gpus_per_node
    while situation.request.objective in SAVING_OBJECTIVES and (nodes, gpus_per_node) != (1, 1):
        nodes, gpus_per_node = (nodes // 2, gpus_per_node) if nodes > 1 else (1, gpus_per_node // 2)
        yield on_cluster(situation, scaled(situation.cluster, nodes, gpus_per_node))


def unused_devices_note(situation: Situation, used: Situation, gain: float, speed: float, margin: float) -> str:
    """A sentence on the requested devices that are not used.

    Args:
        gain: worth of the used devices over that of all.
        speed: throughput of all devices over that of the used ones.
        margin: least gain with which a part of the cluster is used.
    """
    objective = situation.request.objective
    if objective not in SAVING_OBJECTIVES:
        return ""
    if used.cluster.devices == situation.cluster.devices:
        return f" No part of the cluster was found to save more than {margin:.0%} of a token's {objective}."
    saving = f"a token {SAVING_OBJECTIVES[objective]} {1 - 1 / gain:.0%} less {'' if objective == 'cost' else objective + ' '}there"
    devices = used.cluster.devices
    counts = f"{devices} of {situation.cluster.devices} devices {'is' if devices == 1 else 'are'} used"
    all_devices = f"would be {speed:.3g} times as fast" if speed > 1 else "would not be faster"
    return f" {counts}: {saving} than on all, which {all_devices}."
