"""The mesh over the nodes: which ranks the groups of each axis have, and which link they meet on."""

from collections.abc import Iterator
from math import prod

from strategist.contract.cluster import Cluster
from strategist.contract.layout import Layout
from strategist.contract.report import MeshAxis


def mesh_axes(layout: Layout, cluster: Cluster) -> Iterator[MeshAxis]:
    """The axes of the mesh, the slowest first; then those of experts, which unfold from the innermost ranks of the others."""
    sizes = list(layout.mesh.items())
    for place, (name, degree) in enumerate(sizes):
        yield _axis(name, degree, prod(size for _, size in sizes[place + 1 :]), cluster)
    if layout.ep > 1:
        yield _axis("ep", layout.ep, layout.etp, cluster)
    if layout.etp > 1:
        yield _axis("etp", layout.etp, 1, cluster)


def _axis(name: str, degree: int, stride: int, cluster: Cluster) -> MeshAxis:
    across = degree * stride > cluster.gpus_per_node
    link = cluster.inter if across else cluster.intra
    pair = name == "pp"  # stages send to each other, the others meet in collectives
    return MeshAxis(
        name=name, degree=degree, stride=stride, first=tuple(range(0, degree * stride, stride)), across_nodes=across,
        link=link.name, link_bytes_per_second=link.pair_bytes_per_second if pair else link.bytes_per_second,
    )  # fmt: skip
