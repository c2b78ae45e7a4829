"""Topology of this node, from ``nvidia-smi`` and the kernel's ``/sys``, and a cluster file of such nodes."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strategist.contract.topology import Gpu, Nic, NumaNode, Topology
from strategist.errors import InputError
from strategist.files import outputs, yaml_file
from strategist.profiles import hardware, local_machine
from strategist.profiles.measured_cluster import fabric, matrix

HEADER = "# Nodes like the one on which strategist topo ran.\n"
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Rate of a PCIe lane in one direction, by generation (PCI-SIG)."""

NVLINK_BYTES_PER_SECOND = 25e9
"""Rate of one NVLink in one direction, generations 2 to 4; generation 5 has twice that (NVIDIA's data sheets)."""

LINK_EFFICIENCY = {"nvlink": 0.82, "pcie": 0.8, "pcie_via_host": 0.4}
"""Share of a link's rate that collectives reach; assumed, in line with the shipped boxes."""

NETWORK_SHARE, LATENCY_SECONDS = 0.9, {"nvlink": 5e-6, "pcie": 1e-5, "pcie_via_host": 2e-5, "infiniband": 1e-5, "ethernet": 3e-5}
MIN_NETWORK_BYTES_PER_SECOND = 1.25e9
"""Slower network cards (below 10 Gb/s) carry no gradients if there are faster ones."""

_QUERY = ("index", "name", "pci.bus_id", "pcie.link.gen.max", "pcie.link.width.max")


def read(root: Path = Path("/")) -> Topology:
    """The hardware of this node; ``root`` is the folder that holds ``/sys``.

    Raises:
        InputError: ``nvidia-smi`` exists and does not answer.
    """
    gpus = tuple(_gpus(root)) if local_machine.gpu_names() else ()
    text = local_machine.topology() if gpus else ""
    return Topology(
        host=socket.gethostname(), gpus=gpus, nics=tuple(_nics(root / "sys")), nodes=tuple(_numa_nodes(root / "sys")),
        connections=matrix(text), fabric=fabric(text) if len(gpus) > 1 else "",
    )  # fmt: skip


def _gpus(root: Path) -> Iterator[Gpu]:
    for line in local_machine.nvidia_smi(f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader").splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == len(_QUERY) and words[0].isdigit():
            lane = LANE_BYTES_PER_SECOND.get(_parse_int(words[3]), 0.0)
            bus = words[2].lower()[-12:]  # nvidia-smi writes the domain with eight digits, the kernel with four
            yield Gpu(
                index=int(words[0]), name=local_machine.VENDOR.sub("", words[1]).strip(), bus=bus,
                pcie_bytes_per_second=lane * _parse_int(words[4]), numa=_numa(root / "sys/bus/pci/devices" / bus),
            )  # fmt: skip


def _nics(sys_folder: Path) -> Iterator[Nic]:
    """InfiniBand ports, and physical network cards that are not ports of these."""
    infiniband_nics = set()
    for card in sorted((sys_folder / "class/infiniband").glob("*")):
        infiniband_nics |= {path.name for path in (card / "device/net").glob("*")}
        rates = [_read_text(port / "rate") for port in sorted(card.glob("ports/*")) if "ACTIVE" in _read_text(port / "state")]
        gigabits = sum(float(rate.split()[0]) for rate in rates if re.match(r"[0-9.]+ ", rate))
        kind = "ethernet" if "Ethernet" in _read_text(card / "ports/1/link_layer") else "infiniband"
        yield Nic(name=card.name, kind=kind, bytes_per_second=gigabits * 1e9 / 8, numa=_numa(card / "device"))
    for card in sorted((sys_folder / "class/net").glob("*")):
        if card.name not in infiniband_nics and (card / "device").exists():
            megabits = max(_parse_int(_read_text(card / "speed")), 0) if _read_text(card / "operstate") == "up" else 0
            yield Nic(name=card.name, kind="ethernet", bytes_per_second=megabits * 1e6 / 8, numa=_numa(card / "device"))


def _numa_nodes(sys_folder: Path) -> Iterator[NumaNode]:
    for path in sorted((sys_folder / "devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        memory = re.search(r"MemTotal:\s+([0-9]+) kB", _read_text(path / "meminfo"))
        kilobytes = int(memory[1]) if memory else 0
        yield NumaNode(number=int(path.name[4:]), cores=_read_text(path / "cpulist"), memory_bytes=kilobytes * 1024)


def _numa(device: Path) -> int | None:
    """The NUMA node of a device; None if the kernel knows none (-1)."""
    number = _parse_int(_read_text(device / "numa_node"), -1)
    return number if number >= 0 else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _parse_int(text: str, default: int = 0) -> int:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else default


def cluster(topology: Topology, nodes: int) -> dict[str, Any]:
    """Content of a cluster file for ``nodes`` nodes like this one: links as detected, all else from the device's typical box.

    Raises:
        InputError: there is no GPU here, the GPUs differ, or the device is unknown.
    """
    names = sorted({gpu.name for gpu in topology.gpus})
    if len(names) != 1:
        law = "there is no GPU here" if not names else f"the GPUs here differ ({', '.join(names)})"
        raise InputError("strategist topo -o", law, "write a cluster file by hand, see examples/cluster-unlike-nodes.yaml")
    stem = hardware.find_device(names[0])
    if stem is None:
        raise hardware.unknown_device("strategist topo -o", names[0])
    device, box = hardware.load_device(stem)
    intra, inter = _intra(topology, box.intra.fabric), _inter(topology)
    return {
        "name": f"{nodes} x {topology.host}" if nodes > 1 else topology.host,
        "device": device.name,
        "nodes": nodes,
        "gpus_per_node": len(topology.gpus),
        "host_memory_bytes": local_machine.host_memory_bytes(),
        **({"intra": intra} if intra else {}),
        **({"inter": inter} if inter else {}),
        "source": "links as nvidia-smi and the kernel list them; what collectives reach of them is assumed",
    }


def _intra(topology: Topology, box_fabric: str) -> dict[str, Any] | None:
    """The link between GPUs; None if it is unknown or the usual one of the box."""
    if topology.fabric in ("", "other") or (topology.fabric == box_fabric and topology.fabric != "pcie"):
        return None
    connections = {connection for row in topology.connections for connection in row if connection != "X"}
    links = min((_parse_int(connection[2:]) for connection in connections if connection.startswith("NV")), default=0)
    pcie_rate = min((gpu.pcie_bytes_per_second for gpu in topology.gpus), default=0.0)
    rate = links * NVLINK_BYTES_PER_SECOND if topology.fabric == "nvlink" else pcie_rate
    if not rate:
        return None
    return _link(f"{topology.fabric} ({', '.join(sorted(connections))})", topology.fabric, rate * LINK_EFFICIENCY[topology.fabric])


def _inter(topology: Topology) -> dict[str, Any] | None:
    """The network of a node, shared by its GPUs; None if no card is up."""
    usable = [nic for nic in topology.nics if nic.bytes_per_second >= MIN_NETWORK_BYTES_PER_SECOND] or [
        nic for nic in topology.nics if nic.bytes_per_second
    ]
    if not usable:
        return None
    kind = "infiniband" if all(nic.kind == "infiniband" for nic in usable) else "ethernet"
    rate = NETWORK_SHARE * sum(nic.bytes_per_second for nic in usable) / len(topology.gpus)
    return _link(", ".join(nic.name for nic in usable), kind, rate)


def _link(name: str, kind: str, rate: float) -> dict[str, Any]:
    return {
        "name": name, "fabric": kind, "bytes_per_second": float(f"{rate:.3g}"), "pair_bytes_per_second": float(f"{rate:.3g}"),
        "latency_seconds": LATENCY_SECONDS[kind],
    }  # fmt: skip


def write(topology: Topology, nodes: int, path: Path, *, force: bool = False) -> None:
    """Writes the cluster file.

    Raises:
        InputError: as :func:`cluster`.
        FileError: another file exists there, or it cannot be written.
    """
    outputs.write(path, HEADER + yaml_file.dump(cluster(topology, nodes)), marker=HEADER, force=force)
