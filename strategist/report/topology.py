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
def topology_report(topology: Topology) -> Iterator[RenderableType]:
    """NUMA nodes with their devices, and the connection of each pair of GPUs."""
    counts = f"GPUs: {len(topology.gpus)}, network cards: {len(topology.nics)}, NUMA nodes: {len(topology.nodes)}"
    tree = Tree(heading(topology.host, counts))
    known = {node.number for node in topology.nodes}
    for node in topology.nodes:
        branch = tree.add(Text(f"NUMA node {node.number}: cores {node.cores}, {show_bytes(node.memory_bytes)}"))
        _add_devices(branch, topology, {node.number})
    _add_devices(tree, topology, {None, *({gpu.numa for gpu in topology.gpus} | {nic.numa for nic in topology.nics}) - known})
    yield tree
    if len(topology.gpus) > 1 and topology.connections:
        yield section(heading("How GPUs reach each other", topology.fabric), _matrix(topology), Text(_legend(topology), "dim"))


def _add_devices(branch: Tree, topology: Topology, numa: set[int | None]) -> None:
    for gpu in topology.gpus:
        if gpu.numa in numa:
            slot = f", PCIe {show_bytes(gpu.pcie_bytes_per_second)}/s" if gpu.pcie_bytes_per_second else ""
            branch.add(Text(f"GPU {gpu.index}: {gpu.name} at {gpu.bus}{slot}"))
    for nic in topology.nics:
        if nic.numa in numa:
            rate = f"{nic.bytes_per_second * 8 / 1e9:.3g} Gb/s" if nic.bytes_per_second else "down, or of unknown rate"
            branch.add(Text(f"{nic.name}: {nic.kind}, {rate}"))


def _matrix(topology: Topology) -> RenderableType:
    names = [f"GPU{gpu.index}" for gpu in topology.gpus]
    rows = ((name, *row) for name, row in zip(names, topology.connections, strict=False))
    return columns("", *names, rows=rows, left=[""])


def _legend(topology: Topology) -> str:
    kinds = {kind for row in topology.connections for kind in row}
    return "; ".join(f"{kind}: {text}" for kind, text in LEGEND.items() if any(item.startswith(kind) for item in kinds))
