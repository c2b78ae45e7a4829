"""Topology: GPUs, CPUs, NICs and links of one node."""

from strategist.frozen import frozen


@frozen
class Gpu:
    """One GPU. ``pcie_bytes_per_second``: rate of its slot in one direction, 0 where unknown.

    ``numa``: its NUMA node, None where unknown.
    """

    index: int
    name: str
    bus: str
    pcie_bytes_per_second: float = 0.0
    numa: int | None = None


@frozen
class Nic:
    """One network adapter. ``kind`` is infiniband or ethernet. ``bytes_per_second``: rate of its link in one direction, 0 where the
    link is down or the rate unknown.
    """

    name: str
    kind: str
    bytes_per_second: float
    numa: int | None = None


@frozen
class NumaNode:
    """One NUMA node: its cores in the kernel's notation (``0-15,32-47``), and its memory."""

    number: int
    cores: str
    memory_bytes: int


@frozen
class Topology:
    """GPUs, network adapters and NUMA nodes of a machine, and how they are connected.

    ``connections[i][j]`` is the path from GPU i to GPU j in the terms of ``nvidia-smi topo -m`` (NV18, PIX, PXB, PHB, NODE, SYS; X
    is the GPU itself); ``fabric`` is the resulting kind of link.
    """

    host: str
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    nodes: tuple[NumaNode, ...] = ()
    connections: tuple[tuple[str, ...], ...] = ()
    fabric: str = ""
