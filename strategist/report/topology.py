"""A node's topology as a tree and a matrix."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from strategist.contract.topology import Topology
from strategist.report.text_blocks import columns, grouped, heading, section
from strategist.units import show_bytes

LEGEND = {
    "NV": "NVLink, with so many links",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the host's PCIe bridge",
    "NODE": "bridges of one NUMA node",
    "SYS": "another NUMA node",
}


@grouped
def topology_report(found: Topology) -> Iterator[RenderableType]:
    """NUMA nodes with their devices, and the connection of each pair of GPUs."""
    counts = f"GPUs: {len(found.gpus)}, network cards: {len(found.nics)}, NUMA nodes: {len(found.nodes)}"
    tree = Tree(heading(found.host, counts))
    known = {node.number for node in found.nodes}
    for node in found.nodes:
        branch = tree.add(Text(f"NUMA node {node.number}: cores {node.cores}, {show_bytes(node.memory_bytes)}"))
        _add_devices(branch, found, {node.number})
    _add_devices(tree, found, {None, *({gpu.numa for gpu in found.gpus} | {nic.numa for nic in found.nics}) - known})
    yield tree
    if len(found.gpus) > 1 and found.connections:
        yield section(heading("How GPUs reach each other", found.fabric), _matrix(found), Text(_legend(found), "dim"))


def _add_devices(branch: Tree, found: Topology, numa: set[int | None]) -> None:
    for gpu in found.gpus:
        if gpu.numa in numa:
            slot = f", PCIe {show_bytes(gpu.pcie_bytes_per_second)}/s" if gpu.pcie_bytes_per_second else ""
            branch.add(Text(f"GPU {gpu.index}: {gpu.name} at {gpu.bus}{slot}"))
    for nic in found.nics:
        if nic.numa in numa:
            rate = f"{nic.bytes_per_second * 8 / 1e9:.3g} Gb/s" if nic.bytes_per_second else "down, or of no known rate"
            branch.add(Text(f"{nic.name}: {nic.kind}, {rate}"))


def _matrix(found: Topology) -> RenderableType:
    names = [f"GPU{gpu.index}" for gpu in found.gpus]
    rows = ((name, *row) for name, row in zip(names, found.connections, strict=False))
    return columns("", *names, rows=rows, left=[""])


def _legend(found: Topology) -> str:
    kinds = {kind for row in found.connections for kind in row}
    return "; ".join(f"{kind}: {text}" for kind, text in LEGEND.items() if any(item.startswith(kind) for item in kinds))
