"""The mesh over nodes and links: a picture of the devices an axis, with one of its groups and the way between its members."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strategist.contract.cluster import Cluster
from strategist.contract.report import MeshAxis
from strategist.report.page.html import Html, element, empty, join
from strategist.report.setting_text import AXIS_WORDS, counted

NODES = 8
"""Nodes that are drawn at most."""

CELL, GAP, PAD, APART, LABEL = 18.0, 4.0, 7.0, 14.0, 14.0
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
    more = f"; {NODES} of {cluster.nodes:,} nodes are drawn" if cluster.nodes > NODES else ""
    rate = f"{axis.link_bytes_per_second / 1e9:,.3g} GB/s a device"
    said = f" {WORDS[axis.name]}, in {counted(groups, 'group')} {where}, over {axis.link} ({rate}){more}."
    return element("figcaption", element("b", f"{axis.name} {axis.degree}"), said)


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """The nodes that are drawn, by number, and where they and their devices lie."""

    nodes: tuple[int, ...]
    each: int

    @property
    def across(self) -> int:
        return min(len(self.nodes), WIDE)

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
        """The corner of a device."""
        (x, y), slot = self.corner(rank // self.each), rank % self.each
        return x + PAD + slot % WIDE * (CELL + GAP), y + PAD + slot // WIDE * (CELL + GAP)


def _grid(axis: MeshAxis, cluster: Cluster) -> _Grid:
    """The first nodes; where a group has only one of its members there, the first of its own."""
    each = cluster.gpus_per_node
    own = sorted({rank // each for rank in axis.first})
    far = len(own) > 1 and own[1] >= NODES
    return _Grid(nodes=tuple(own[:NODES]) if far else tuple(range(min(cluster.nodes, NODES))), each=each)


def _picture(axis: MeshAxis, cluster: Cluster) -> Html:
    grid, first = _grid(axis, cluster), frozenset(axis.first)
    ranks = [node * grid.each + slot for node in grid.nodes for slot in range(grid.each)]
    drawn = [rank for rank in ranks if rank in first]
    said = f"{axis.name} on {cluster.nodes} x {grid.each} devices: ranks {', '.join(map(str, axis.first[:8]))}"
    said += " and so on are a group" if axis.degree > 8 else " are a group"
    parts = join([
        *(_node(node, grid) for node in grid.nodes),
        *_way(drawn, grid, across_nodes=axis.across_nodes),
        *(_device(rank, grid, axis, own=rank in first) for rank in ranks),
    ])  # fmt: skip
    width, height = grid.size
    box, look = f"-1 -1 {width + 2:g} {height + 2:g}", f"mesh across-{grid.across}"
    return element("svg", parts, viewBox=box, role="img", aria_label=said, class_=look)


def _node(number: int, grid: _Grid) -> Html:
    (x, y), (wide, high) = grid.corner(number), grid.node
    frame = empty("rect", x=x, y=y, width=wide, height=high, rx=4, class_="node")
    return join([element("text", f"node {number}", x=x + 1, y=y - 4), frame])


def _device(rank: int, grid: _Grid, axis: MeshAxis, *, own: bool) -> Html:
    x, y = grid.device(rank)
    begins = rank - rank // axis.stride % axis.degree * axis.stride
    said = element("title", f"rank {rank} on node {rank // grid.each}; its group of {axis.name} begins with rank {begins}")
    return element("rect", said, x=x, y=y, width=CELL, height=CELL, rx=2, class_="device own" if own else "device")


def _way(drawn: Sequence[int], grid: _Grid, *, across_nodes: bool) -> Iterator[Html]:
    """From one member to the next."""
    centres = [(x + CELL / 2, y + CELL / 2) for x, y in map(grid.device, drawn)]
    if len(centres) > 1:
        path = "L".join(f"{x:g} {y:g}" for x, y in centres)
        yield empty("path", d=f"M{path}", class_="way far" if across_nodes else "way")
