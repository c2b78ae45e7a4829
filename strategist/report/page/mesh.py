"""The mesh over nodes and links: a picture of the devices an axis, with one of its groups and the way between its members."""

from collections.abc import Iterator, Sequence

from strategist.contract.cluster import Cluster
from strategist.contract.report import MeshAxis
from strategist.report.page.html import Html, element, empty, join
from strategist.report.words import AXIS_WORDS

NODES = 16
"""Nodes that are drawn at most; the others continue the pattern."""

CELL, GAP, PAD, APART = 18.0, 4.0, 7.0, 14.0
WIDE = 4
"""Devices beside each other in a node, and nodes beside each other."""

WORDS = {**AXIS_WORDS, "ep": "ranks that share the experts", "etp": "pieces of each expert"}


def mesh(axes: Sequence[MeshAxis], cluster: Cluster) -> Html:
    """A picture an axis; a mesh without axes is one device."""
    if not axes:
        return element("p", "The mesh has one device.")
    return element("div", *(element("figure", _picture(axis, cluster), _caption(axis, cluster)) for axis in axes), class_="meshes")


def _caption(axis: MeshAxis, cluster: Cluster) -> Html:
    groups, where = cluster.devices // axis.degree, "across nodes" if axis.across_nodes else "inside a node"
    more = f"; {NODES} of {cluster.nodes} nodes are drawn" if cluster.nodes > NODES else ""
    said = f" {WORDS[axis.name]}, in {groups:,} group{'s' if groups > 1 else ''} {where}, over {axis.link}"
    return element("figcaption", element("b", f"{axis.name} {axis.degree}"), f"{said} ({_rate(axis)}){more}.")


def _rate(axis: MeshAxis) -> str:
    return f"{axis.link_bytes_per_second / 1e9:,.3g} GB/s a device"


def _picture(axis: MeshAxis, cluster: Cluster) -> Html:
    nodes, each = min(cluster.nodes, NODES), cluster.gpus_per_node
    wide, high = _node_size(each)
    across = min(nodes, WIDE)
    width, height = across * (wide + APART) - APART, -(-nodes // across) * (high + APART) - APART
    first = frozenset(axis.first)
    drawn = sorted(rank for rank in first if rank < nodes * each)
    said = f"{axis.name} over {cluster.nodes} nodes of {each}: ranks {', '.join(map(str, drawn[:8]))}"
    said += " and so on are a group" if len(axis.first) > len(drawn[:8]) else " are a group"
    parts = join([
        *(_node(number, each) for number in range(nodes)),
        *_way(drawn, each, across_nodes=axis.across_nodes),
        *(_device(rank, each, axis, own=rank in first) for rank in range(nodes * each)),
    ])  # fmt: skip
    return element("svg", parts, viewBox=f"-1 -1 {width + 2:g} {height + 2:g}", role="img", aria_label=said, class_="mesh")


def _node_size(each: int) -> tuple[float, float]:
    across = min(each, WIDE)
    return across * (CELL + GAP) - GAP + 2 * PAD, -(-each // across) * (CELL + GAP) - GAP + 2 * PAD


def _corner(node: int, each: int) -> tuple[float, float]:
    wide, high = _node_size(each)
    return node % WIDE * (wide + APART), node // WIDE * (high + APART)


def _place(rank: int, each: int) -> tuple[float, float]:
    """The corner of a device."""
    (x, y), slot = _corner(rank // each, each), rank % each
    return x + PAD + slot % WIDE * (CELL + GAP), y + PAD + slot // WIDE * (CELL + GAP)


def _node(number: int, each: int) -> Html:
    (x, y), (wide, high) = _corner(number, each), _node_size(each)
    return empty("rect", x=x, y=y, width=wide, height=high, rx=4, class_="node")


def _device(rank: int, each: int, axis: MeshAxis, *, own: bool) -> Html:
    x, y = _place(rank, each)
    mates = rank - (rank // axis.stride) % axis.degree * axis.stride
    said = f"rank {rank}, node {rank // each}; its {axis.name} group begins with rank {mates}"
    return element(
        "rect", element("title", said), x=x, y=y, width=CELL, height=CELL, rx=2, class_="device own" if own else "device"
    )  # fmt: skip


def _way(drawn: Sequence[int], each: int, *, across_nodes: bool) -> Iterator[Html]:
    """From one member to the next."""
    centres = [(x + CELL / 2, y + CELL / 2) for x, y in (_place(rank, each) for rank in drawn)]
    if len(centres) > 1:
        path = "L".join(f"{x:g} {y:g}" for x, y in centres)
        yield empty("path", d=f"M{path}", class_="way far" if across_nodes else "way")
