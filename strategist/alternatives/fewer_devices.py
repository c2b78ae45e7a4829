"""Fewer devices: cheaper per token where communication grows faster than throughput."""

from collections.abc import Iterator

from strategist.profiles.cluster import scaled
from strategist.profiles.heterogeneous_clusters import without_group
from strategist.profiles.situation import Situation, situated

THRIFTY = {"cost": "costs", "energy": "needs"}
"""Objectives for which devices may stay idle, and what a token does to them."""


def with_fewer_devices(asked: Situation) -> Iterator[Situation]:
    """The situation on half of its nodes, half of those, and so on; then on part of a node, down to one device. Of unlike nodes, on
    all but one kind.

    Nothing where the objective would rather use them all.
    """
    if asked.cluster.groups:
        kinds = asked.cluster.groups if asked.request.objective in THRIFTY and len(asked.cluster.groups) > 1 else ()
        yield from (situated(asked, without_group(asked.cluster, group)) for group in kinds)
        return
    nodes, each = asked.cluster.nodes, asked.cluster.gpus_per_node
    while asked.request.objective in THRIFTY and (nodes, each) != (1, 1):
        nodes, each = (nodes // 2, each) if nodes > 1 else (1, each // 2)
        yield situated(asked, scaled(asked.cluster, nodes, each))


def unused_devices_note(asked: Situation, used: Situation, gain: float, speed: float, margin: float) -> str:
    """What became of the devices asked for: ``gain`` is the worth of those used over that of all, ``speed`` the throughput
    of all over theirs, ``margin`` what a part had to gain to be used."""
    objective = asked.request.objective
    if objective not in THRIFTY:
        return ""
    if used.cluster.devices == asked.cluster.devices:
        return f" No part of the cluster was found to save more than {margin:.0%} of a token's {objective}."
    saved = f"a token {THRIFTY[objective]} {1 - 1 / gain:.0%} less {'' if objective == 'cost' else objective + ' '}there"
    counts = f"Of {asked.cluster.devices} devices asked for, {used.cluster.devices} are used"
    whole = f"would be {speed:.3g} times as fast" if speed > 1 else "would not be faster"
    return f" {counts}: {saved} than on all of them, which {whole}."
