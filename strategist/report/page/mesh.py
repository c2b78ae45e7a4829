"""The mesh over nodes and links: one picture per axis, with one of its groups and the path between its members."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strategist.contract.cluster import Cluster
from strategist.contract.report import MeshAxis
from strategist.report.page.html import Html, element, empty, join
from strategist.report.setting_text import AXIS_WORDS, counted

NODES = 8
"""Number of nodes up to which every device is drawn; in larger clusters a box is a node, or several equal ones."""

CELL, GAP, PAD, APART, LABEL = 18.0, 4.0, 7.0, 14.0, 16.0
WIDE, ACROSS = 4, 2
"""Devices side by side in a node, and nodes side by side."""

ROW, MOST, BOX, HIGH, LEFT = 8, 64, 34.0, 22.0, 28.0
"""If a box is a node or more: boxes per row, maximum number of boxes, size of a box, and room for the number of a row's first
box.
"""

WORDS = {**AXIS_WORDS, "ep": "ranks that share the experts", "etp": "pieces of each expert"}


def mesh(axes: Sequence[MeshAxis], cluster: Cluster) -> Html:
    """A picture per axis; a mesh without axes is one device."""
    if not axes:
        return element("p", "The mesh has one device.")
    return element("div", *(element("figure", _picture(axis, cluster), _caption(axis, cluster)) for axis in axes), class_="meshes")


def _caption(axis: MeshAxis, cluster: Cluster) -> Html:
    groups, where = cluster.devices // axis.degree, "across nodes" if axis.across_nodes else "inside a node"
    each = _each(cluster)
    box = "a node" if each == 1 else f"{each} nodes"
    more = f"; a box is {box}, its number counts ranks of the first group" if cluster.nodes > NODES else ""
    rate = f"{axis.link_bytes_per_second / 1e9:,.3g} GB/s a device"
    said = f" {WORDS[axis.name]}, in {counted(groups, 'group')} {where}, over {axis.link} ({rate}){more}."
    return element("figcaption", element("b", f"{axis.name} {axis.degree}"), said)


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """The drawn nodes, and the positions of nodes and devices."""

    nodes: tuple[int, ...]
    each: int

    @property
    def across(self) -> int:
        return min(len(self.nodes), ACROSS)

    @property
    def node(self) -> tuple[float, float]:
        """Width and height of a node."""
        across = min(self.each, WIDE)
        return across * (CELL + GAP) - GAP + 2 * PAD, -(-self.each // across) * (CELL + GAP) - GAP + 2 * PAD

    @property
    def size(self) -> tuple[float, float]:
        wide, high = self.node
        return self.across * (wide + APART) - APART, -(-len(self.nodes) // self.across) * (high + LABEL)

    def corner(self, node: int) -> tuple[float, float]:
        (wide, high), place = self.node, self.nodes.index(node)
        return place % self.across * (wide + APART), place // self.across * (high + LABEL) + LABEL

    def device(self, rank: int) -> tuple[float, float]:
        """Top left corner of a device."""
        (x, y), slot = self.corner(rank // self.each), rank % self.each
        return x + PAD + slot % WIDE * (CELL + GAP), y + PAD + slot // WIDE * (CELL + GAP)


def _each(cluster: Cluster) -> int:
    """Number of nodes per box."""
    return -(-cluster.nodes // MOST)


def _picture(axis: MeshAxis, cluster: Cluster) -> Html:
    said = f"{axis.name} on {cluster.nodes} x {cluster.gpus_per_node} devices: ranks {', '.join(map(str, axis.first[:8]))}"
    said += " and so on are a group" if axis.degree > 8 else " are a group"
    parts, (width, height) = _devices(axis, cluster) if cluster.nodes <= NODES else _nodes(axis, cluster)
    box, look = f"-1 -1 {width + 2:g} {height + 2:g}", f"mesh across-{min(cluster.nodes, ACROSS)}"
    return element("svg", join(parts), viewBox=box, role="img", aria_label=said, class_=look)


def _devices(axis: MeshAxis, cluster: Cluster) -> tuple[list[Html], tuple[float, float]]:
    """Every device, and the size of the picture."""
    grid, first = _Grid(nodes=tuple(range(cluster.nodes)), each=cluster.gpus_per_node), frozenset(axis.first)
    ranks = range(cluster.nodes * grid.each)
    centres = [(x + CELL / 2, y + CELL / 2) for x, y in (grid.device(rank) for rank in ranks if rank in first)]
    return [
        *(_node(node, grid) for node in grid.nodes),
        *_way(centres, across_nodes=axis.across_nodes),
        *(_device(rank, grid, axis, own=rank in first) for rank in ranks),
    ], grid.size


def _nodes(axis: MeshAxis, cluster: Cluster) -> tuple[list[Html], tuple[float, float]]:
    """A box per node, or per several nodes if there are more than MOST, with the number of its ranks in the first group."""
    each = _each(cluster)
    count = -(-cluster.nodes // each)
    own = Counter(rank // (cluster.gpus_per_node * each) for rank in axis.first)
    corners = [(LEFT + place % ROW * BOX, place // ROW * HIGH) for place in range(count)]
    centres = [(x + (BOX - GAP) / 2, y + (HIGH - GAP) / 2) for x, y in (corners[place] for place in sorted(own))]
    labels = (
        element("text", str(place * each), x=LEFT - 5, y=corners[place][1] + 13, text_anchor="end")
        for place in range(0, count, ROW)
    )
    boxes = (_box(place * each, each, corners[place], own[place]) for place in range(count))
    return [*labels, *boxes, *_way(centres, across_nodes=axis.across_nodes), *_counts(own, corners)], (
        LEFT + min(count, ROW) * BOX - GAP, -(-count // ROW) * HIGH - GAP,
    )  # fmt: skip


def _box(first: int, each: int, corner: tuple[float, float], own: int) -> Html:
    name = f"node {first}" if each == 1 else f"nodes {first} to {first + each - 1}"
    said = element("title", f"{name}: {counted(own, 'rank')} of the first group")
    look = "device own" if own else "device"
    return element("rect", said, x=corner[0], y=corner[1], width=BOX - GAP, height=HIGH - GAP, rx=3, class_=look)


def _counts(own: Counter[int], corners: Sequence[tuple[float, float]]) -> Iterator[Html]:
    for place, ranks in own.items():
        x, y = corners[place]
        yield element("text", str(ranks), x=x + (BOX - GAP) / 2, y=y + 13, text_anchor="middle", class_="number")


def _node(number: int, grid: _Grid) -> Html:
    (x, y), (wide, high) = grid.corner(number), grid.node
    frame = empty("rect", x=x, y=y, width=wide, height=high, rx=4, class_="node")
    return join([element("text", f"node {number}", x=x + 1, y=y - 4), frame])


def _device(rank: int, grid: _Grid, axis: MeshAxis, *, own: bool) -> Html:
    x, y = grid.device(rank)
    begins = rank - rank // axis.stride % axis.degree * axis.stride
    said = element("title", f"rank {rank} on node {rank // grid.each}; its group of {axis.name} begins with rank {begins}")
    return element("rect", said, x=x, y=y, width=CELL, height=CELL, rx=2, class_="device own" if own else "device")


def _way(centres: Sequence[tuple[float, float]], *, across_nodes: bool) -> Iterator[Html]:
    """Lines from one member to the next."""
    if len(centres) > 1:
        path = "L".join(f"{x:g} {y:g}" for x, y in centres)
        yield empty("path", d=f"M{path}", class_="way far" if across_nodes else "way")
