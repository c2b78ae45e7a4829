"""Topology: GPUs, CPUs, NICs and links of one node."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU; ``pcie_bytes_per_second`` is its slot's in one direction, 0 where it is not known, as ``numa`` is None."""

    index: int
    name: str
    bus: str
    pcie_bytes_per_second: float = 0.0
    numa: int | None = None


@dataclass(frozen=True, kw_only=True)
class Nic:
    """One network card; ``kind`` is infiniband or ethernet, the rate that of its link in one direction, 0 where it is down or not
    known."""

    name: str
    kind: str
    bytes_per_second: float
    numa: int | None = None


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """Cores as the kernel lists them (``0-15,32-47``), and the memory that lies beside them."""

    number: int
    cores: str
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Topology:
    """GPUs, network adapters and NUMA nodes of a machine, and how they are connected.

    ``connections[i][j]`` is how GPU i reaches GPU j, in the words of ``nvidia-smi topo -m`` (NV18, PIX, PXB, PHB, NODE, SYS; X is
    itself); ``fabric`` what that amounts to.
    """

    host: str
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    nodes: tuple[NumaNode, ...] = ()
    connections: tuple[tuple[str, ...], ...] = ()
    fabric: str = ""
