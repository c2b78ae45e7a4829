"""The mesh over nodes and links: one picture per axis, with one of its groups and the path between its members."""

from collections import Counter
from collections.abc import Iterator, Sequence

from strategist.contract.cluster import Cluster
from strategist.contract.report import MeshAxis
from strategist.frozen import frozen
from strategist.report.page.html import Html, element, empty, join
from strategist.report.setting_text import AXIS_WORDS, counted

NODES = 8
"""Number of nodes up to which every device is drawn; in larger clusters a box is a node, or several equal ones."""

CELL, GAP, PAD, NODE_GAP, LABEL = 18.0, 4.0, 7.0, 14.0, 16.0
DEVICE_COLUMNS, NODE_COLUMNS = 4, 2
"""Devices side by side in a node, and nodes side by side."""

BOX_COLUMNS, MAX_BOXES, BOX_WIDTH, BOX_HEIGHT, LEFT_MARGIN = 8, 64, 34.0, 22.0, 28.0
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
    groups, span = cluster.devices // axis.degree, "across nodes" if axis.across_nodes else "inside a node"
    nodes_per_box = _nodes_per_box(cluster)
    box = "a node" if nodes_per_box == 1 else f"{nodes_per_box} nodes"
    box_note = f"; a box is {box}, its number counts ranks of the first group" if cluster.nodes > NODES else ""
    rate = f"{axis.link_bytes_per_second / 1e9:,.3g} GB/s a device"
    text = f" {WORDS[axis.name]}, in {counted(groups, 'group')} {span}, over {axis.link} ({rate}){box_note}."
    return element("figcaption", element("b", f"{axis.name} {axis.degree}"), text)


@frozen
class _Grid:
    """The drawn nodes, and the positions of nodes and devices."""

    nodes: tuple[int, ...]
    devices_per_node: int

    @property
    def columns(self) -> int:
        return min(len(self.nodes), NODE_COLUMNS)

    @property
    def node(self) -> tuple[float, float]:
        """Width and height of a node."""
        columns = min(self.devices_per_node, DEVICE_COLUMNS)
        return columns * (CELL + GAP) - GAP + 2 * PAD, -(-self.devices_per_node // columns) * (CELL + GAP) - GAP + 2 * PAD

    @property
    def size(self) -> tuple[float, float]:
        width, height = self.node
        return self.columns * (width + NODE_GAP) - NODE_GAP, -(-len(self.nodes) // self.columns) * (height + LABEL)

    def corner(self, node: int) -> tuple[float, float]:
        (width, height), index = self.node, self.nodes.index(node)
        return index % self.columns * (width + NODE_GAP), index // self.columns * (height + LABEL) + LABEL

    def device(self, rank: int) -> tuple[float, float]:
        """Top left corner of a device."""
        (x, y), slot = self.corner(rank // self.devices_per_node), rank % self.devices_per_node
        return x + PAD + slot % DEVICE_COLUMNS * (CELL + GAP), y + PAD + slot // DEVICE_COLUMNS * (CELL + GAP)


def _nodes_per_box(cluster: Cluster) -> int:
    """Number of nodes per box."""
    return -(-cluster.nodes // MAX_BOXES)


def _picture(axis: MeshAxis, cluster: Cluster) -> Html:
    label = f"{axis.name} on {cluster.nodes} x {cluster.gpus_per_node} devices: ranks {', '.join(map(str, axis.first[:8]))}"
    label += " and so on are a group" if axis.degree > 8 else " are a group"
    parts, (width, height) = _devices(axis, cluster) if cluster.nodes <= NODES else _nodes(axis, cluster)
    box, css_class = f"-1 -1 {width + 2:g} {height + 2:g}", f"mesh across-{min(cluster.nodes, NODE_COLUMNS)}"
    return element("svg", join(parts), viewBox=box, role="img", aria_label=label, class_=css_class)


def _devices(axis: MeshAxis, cluster: Cluster) -> tuple[list[Html], tuple[float, float]]:
    """Every device, and the size of the picture."""
    grid, first = _Grid(nodes=tuple(range(cluster.nodes)), devices_per_node=cluster.gpus_per_node), frozenset(axis.first)
    ranks = range(cluster.nodes * grid.devices_per_node)
    centres = [(x + CELL / 2, y + CELL / 2) for x, y in (grid.device(rank) for rank in ranks if rank in first)]
    return [
        *(_node(node, grid) for node in grid.nodes),
        *_group_path(centres, across_nodes=axis.across_nodes),
        *(_device(rank, grid, axis, in_first_group=rank in first) for rank in ranks),
    ], grid.size


def _nodes(axis: MeshAxis, cluster: Cluster) -> tuple[list[Html], tuple[float, float]]:
    """A box per node, or per several nodes if there are more than MAX_BOXES, with the number of its ranks in the first group."""
    nodes_per_box = _nodes_per_box(cluster)
    count = -(-cluster.nodes // nodes_per_box)
    group_ranks = Counter(rank // (cluster.gpus_per_node * nodes_per_box) for rank in axis.first)
    corners = [(LEFT_MARGIN + index % BOX_COLUMNS * BOX_WIDTH, index // BOX_COLUMNS * BOX_HEIGHT) for index in range(count)]
    centres = [
        (x + (BOX_WIDTH - GAP) / 2, y + (BOX_HEIGHT - GAP) / 2) for x, y in (corners[index] for index in sorted(group_ranks))
    ]
    labels = (
        element("text", str(index * nodes_per_box), x=LEFT_MARGIN - 5, y=corners[index][1] + 13, text_anchor="end")
        for index in range(0, count, BOX_COLUMNS)
    )
    boxes = (_box(index * nodes_per_box, nodes_per_box, corners[index], group_ranks[index]) for index in range(count))
    return [*labels, *boxes, *_group_path(centres, across_nodes=axis.across_nodes), *_counts(group_ranks, corners)], (
        LEFT_MARGIN + min(count, BOX_COLUMNS) * BOX_WIDTH - GAP, -(-count // BOX_COLUMNS) * BOX_HEIGHT - GAP,
    )  # fmt: skip


def _box(first: int, nodes_per_box: int, corner: tuple[float, float], group_ranks: int) -> Html:
    name = f"node {first}" if nodes_per_box == 1 else f"nodes {first} to {first + nodes_per_box - 1}"
    tooltip = element("title", f"{name}: {counted(group_ranks, 'rank')} of the first group")
    css_class = "device own" if group_ranks else "device"
    return element(
        "rect", tooltip, x=corner[0], y=corner[1], width=BOX_WIDTH - GAP, height=BOX_HEIGHT - GAP, rx=3, class_=css_class
    )


def _counts(group_ranks: Counter[int], corners: Sequence[tuple[float, float]]) -> Iterator[Html]:
    for index, ranks in group_ranks.items():
        x, y = corners[index]
        yield element("text", str(ranks), x=x + (BOX_WIDTH - GAP) / 2, y=y + 13, text_anchor="middle", class_="number")


def _node(number: int, grid: _Grid) -> Html:
    (x, y), (width, height) = grid.corner(number), grid.node
    frame = empty("rect", x=x, y=y, width=width, height=height, rx=4, class_="node")
    return join([element("text", f"node {number}", x=x + 1, y=y - 4), frame])


def _device(rank: int, grid: _Grid, axis: MeshAxis, *, in_first_group: bool) -> Html:
    x, y = grid.device(rank)
    first_rank = rank - rank // axis.stride % axis.degree * axis.stride
    tooltip = element(
        "title", f"rank {rank} on node {rank // grid.devices_per_node}; its group of {axis.name} begins with rank {first_rank}"
    )
    return element("rect", tooltip, x=x, y=y, width=CELL, height=CELL, rx=2, class_="device own" if in_first_group else "device")


def _group_path(centres: Sequence[tuple[float, float]], *, across_nodes: bool) -> Iterator[Html]:
    """Lines from one member to the next."""
    if len(centres) > 1:
        path = "L".join(f"{x:g} {y:g}" for x, y in centres)
        yield empty("path", d=f"M{path}", class_="way far" if across_nodes else "way")
