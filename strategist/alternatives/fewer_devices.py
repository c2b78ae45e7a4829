"""Fewer devices: cheaper per token where communication grows faster than throughput."""

from collections.abc import Iterator

from strategist.profiles.cluster import scaled
from strategist.profiles.heterogeneous_clusters import without_group
from strategist.profiles.situation import Situation, on_cluster

SAVING_OBJECTIVES = {"cost": "costs", "energy": "needs"}
"""Objectives for which devices may stay idle, with their verb."""


def with_fewer_devices(asked: Situation) -> Iterator[Situation]:
    """The situation on half of its nodes, on half of those, and so on; then on part of a node, down to one device. With
    heterogeneous nodes, on all but one kind.

    Nothing if the objective prefers all devices.
    """
    if asked.cluster.groups:
        kinds = asked.cluster.groups if asked.request.objective in SAVING_OBJECTIVES and len(asked.cluster.groups) > 1 else ()
        yield from (on_cluster(asked, without_group(asked.cluster, group)) for group in kinds)
        return
    nodes, each = asked.cluster.nodes, asked.cluster.gpus_per_node
    while asked.request.objective in SAVING_OBJECTIVES and (nodes, each) != (1, 1):
        nodes, each = (nodes // 2, each) if nodes > 1 else (1, each // 2)
        yield on_cluster(asked, scaled(asked.cluster, nodes, each))


def unused_devices_note(asked: Situation, used: Situation, gain: float, speed: float, margin: float) -> str:
    """A sentence on the requested devices that are not used.

    Args:
        gain: worth of the used devices over that of all.
        speed: throughput of all devices over that of the used ones.
        margin: least gain with which a part of the cluster is used.
    """
    objective = asked.request.objective
    if objective not in SAVING_OBJECTIVES:
        return ""
    if used.cluster.devices == asked.cluster.devices:
        return f" No part of the cluster was found to save more than {margin:.0%} of a token's {objective}."
    saved = f"a token {SAVING_OBJECTIVES[objective]} {1 - 1 / gain:.0%} less {'' if objective == 'cost' else objective + ' '}there"
    counts = f"Of {asked.cluster.devices} devices asked for, {used.cluster.devices} are used"
    whole = f"would be {speed:.3g} times as fast" if speed > 1 else "would not be faster"
    return f" {counts}: {saved} than on all of them, which {whole}."
