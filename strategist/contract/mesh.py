"""Mesh axes mapped to nodes: the ranks of the groups of each axis, and the link between them."""

from collections.abc import Iterator
from math import prod

from strategist.contract.cluster import Cluster
from strategist.contract.layout import Layout
from strategist.contract.report import MeshAxis


def mesh_axes(layout: Layout, cluster: Cluster) -> Iterator[MeshAxis]:
    """Axes of the mesh, slowest first; then ep and etp, which are formed from the innermost ranks of other axes."""
    sizes = list(layout.mesh.items())
    for index, (name, degree) in enumerate(sizes):
        yield _axis(name, degree, prod(size for _, size in sizes[index + 1 :]), cluster)
    if layout.ep > 1:
        yield _axis("ep", layout.ep, layout.etp, cluster)
    if layout.etp > 1:
        yield _axis("etp", layout.etp, 1, cluster)


def _axis(name: str, degree: int, stride: int, cluster: Cluster) -> MeshAxis:
    across = degree * stride > cluster.gpus_per_node
    link = cluster.inter if across else cluster.intra
    pair = name == "pp"  # pipeline stages use point-to-point transfers, other axes use collectives
    return MeshAxis(
        name=name, degree=degree, stride=stride, first=tuple(range(0, degree * stride, stride)), across_nodes=across,
        link=link.name, link_bytes_per_second=link.pair_bytes_per_second if pair else link.bytes_per_second,
    )  # fmt: skip
