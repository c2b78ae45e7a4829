"""The topology of a node: read from nvidia-smi and sysfs, drawn, and written as a cluster file."""

import os
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract.topology import Topology
from strategist.errors import FileError, InputError
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.topology import read, write

MATRIX = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \t{near}\t{far}\t{far}\tPXB\t0-15\t0\t\tN/A
GPU1\t{near}\t X \t{far}\t{far}\tNODE\t0-15\t0\t\tN/A
GPU2\t{far}\t{far}\t X \t{near}\tSYS\t16-31\t1\t\tN/A
GPU3\t{far}\t{far}\t{near}\t X \tSYS\t16-31\t1\t\tN/A
NIC0\tPXB\tNODE\tSYS\tSYS\t X

Legend:

  X    = Self
"""
SMI = """#!/bin/sh
case "$*" in
  *query-gpu=name*) for i in 0 1 2 3; do echo "NVIDIA {name}"; done;;
  *query-gpu=index*) for i in 0 1 2 3; do echo "$i, NVIDIA {name}, 00000000:0$i:00.0, {generation}, 16"; done;;
  *topo*) cat "{matrix}";;
esac
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``make(name, near, far)`` returns the root of a fake node with four GPUs, two network cards and two NUMA nodes."""

    def make(name: str = "H100 80GB HBM3", near: str = "NV18", far: str = "NV18", generation: int = 5) -> Path:
        (tmp_path / "matrix").write_text(MATRIX.format(near=near, far=far))
        (tmp_path / "bin").mkdir(exist_ok=True)
        driver = tmp_path / "bin" / "nvidia-smi"
        driver.write_text(SMI.format(name=name, generation=generation, matrix=tmp_path / "matrix"))
        driver.chmod(0o755)
        monkeypatch.setenv("PATH", f"{driver.parent}{os.pathsep}{os.environ['PATH']}")
        files = {
            "class/infiniband/mlx5_0/device/numa_node": "0\n",
            "class/infiniband/mlx5_0/device/net/ib0/address": "x\n",
            "class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "class/net/ib0/device/numa_node": "0\n",
            "class/net/eth0/device/numa_node": "-1\n",
            "class/net/eth0/operstate": "up\n",
            "class/net/eth0/speed": "1000\n",
            "class/net/lo/operstate": "unknown\n",
            **{f"bus/pci/devices/0000:0{number}:00.0/numa_node": f"{number // 2}\n" for number in range(4)},
            **{f"devices/system/node/node{number}/cpulist": f"{16 * number}-{16 * number + 15}\n" for number in range(2)},
            **{f"devices/system/node/node{number}/meminfo": f"Node {number} MemTotal:  1048576 kB\n" for number in range(2)},
        }
        for place, text in files.items():
            path = tmp_path / "sys" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def test_gpus_network_cards_and_numa_nodes_are_read_with_their_locality(node) -> None:
    found = read(node())
    assert [(gpu.name, gpu.bus, gpu.numa) for gpu in found.gpus][2:] == [
        ("H100 80GB HBM3", "0000:02:00.0", 1),
        ("H100 80GB HBM3", "0000:03:00.0", 1),
    ]
    assert found.gpus[0].pcie_bytes_per_second == pytest.approx(63e9, rel=0.01)
    assert [(nic.name, nic.kind, nic.bytes_per_second, nic.numa) for nic in found.nics] == [
        ("mlx5_0", "infiniband", 50e9, 0),
        ("eth0", "ethernet", 0.125e9, None),
    ]
    assert [(item.number, item.cores, item.memory_bytes) for item in found.nodes] == [(0, "0-15", 2**30), (1, "16-31", 2**30)]
    assert found.connections[0] == ("X", "NV18", "NV18", "NV18")
    assert found.fabric == "nvlink"


def test_the_cluster_file_has_the_detected_links(node, tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    write(read(node()), 2, target)
    cluster = resolve_cluster(str(target))
    assert (cluster.nodes, cluster.gpus_per_node, cluster.device.name) == (2, 4, "H100-SXM")
    assert cluster.inter.bytes_per_second == pytest.approx(0.9 * 50e9 / 4, rel=0.01)  # one card for four GPUs
    assert cluster.intra.fabric == "nvlink"


def test_gpus_without_nvlink_use_pcie_via_the_host(node, tmp_path: Path) -> None:
    write(read(node("A100 80GB PCIe", "PIX", "SYS", 4)), 1, tmp_path / "cluster.yaml")
    cluster = resolve_cluster(str(tmp_path / "cluster.yaml"))
    assert cluster.intra.fabric == "pcie_via_host"
    assert cluster.intra.bytes_per_second < 32e9


def test_a_driver_that_fails_gives_an_error(node, tmp_path: Path) -> None:
    root = node()
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.write_text(
        driver.read_text().replace("*query-gpu=index*) for", '*query-gpu=index*) echo "GPU is lost"; exit 15;; never) for')
    )
    with pytest.raises(InputError, match=r"nvidia-smi fails \(GPU is lost\); run it by hand"):
        read(root)


def test_an_existing_file_is_not_overwritten(node, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("mine")
    with pytest.raises(FileError, match="is there already"):
        write(read(node()), 1, tmp_path / "cluster.yaml")
    assert (tmp_path / "cluster.yaml").read_text() == "mine"


def test_a_node_without_gpus_gives_an_error_instead_of_a_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no GPU here"):
        write(Topology(host="x"), 1, tmp_path / "cluster.yaml")


def test_the_topology_report_draws_gpus_and_cards_by_numa_node(node, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from strategist.report.topology import topology_report

    Console(width=100).print(topology_report(read(node(far="SYS"))))
    drawn = capsys.readouterr().out
    assert "NUMA node 1: cores 16-31, 1.0 GiB" in drawn
    assert (
        drawn.index("NUMA node 0") < drawn.index("GPU 0") < drawn.index("mlx5_0: infiniband, 400 Gb/s") < drawn.index("NUMA node 1")
    )
    assert "SYS: another NUMA node" in drawn


def test_the_topo_command_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo"]) == 0
    assert "network cards" in capsys.readouterr().out
    assert main(["topo", "--json"]) == 0
    assert '"type": "Topology"' in capsys.readouterr().out
