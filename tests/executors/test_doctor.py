"""Findings of ``strategist doctor``; a healthy machine has none."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract.diagnostic import Level
from strategist.executors.doctor import findings
from strategist.executors.machine_facts import MachineFacts, examine, parse_gpus
from strategist.units import GIB, MIB

TORCH = {
    "torch": "2.13.0+cu130", "cuda": "13.0", "hip": "", "cuda_available": True, "devices": 2, "gloo": True, "nccl": "2.29.3",
    "architectures": ["sm_80", "sm_90"], "capabilities": ["sm_90", "sm_90"], "no_peer_access": 0, "threads": 8,
}  # fmt: skip
SMI = """\
0, NVIDIA H100 80GB HBM3, 580.82.07, Enabled, 0, Not Active, Not Active, Not Active, 16, 16, 0
1, NVIDIA H100 80GB HBM3, 580.82.07, Enabled, 0, Not Active, Not Active, Not Active, 16, 16, 4
"""
HEALTHY = MachineFacts(
    system="linux", python=(3, 12), packages={"torch": "2.13.0+cu130", "numpy": "2.2.0", "optuna": "4.9.0", "pyyaml": "6.0"},
    environment={"OMP_NUM_THREADS": "4"}, cores=32, memory_bytes=512 * GIB, folder="/data", torch=TORCH, gpus=parse_gpus(SMI),
    interfaces=("lo", "eth0", "eth1"), shared_memory_bytes=64 * GIB, file_limit=1_048_576, locked_memory_limit=-1,
    clock_synchronised=True, disk_free_bytes=900 * GIB,
)  # fmt: skip
CPU_TORCH = {
    **TORCH,
    "torch": "2.13.0+cpu",
    "cuda": "",
    "nccl": "",
    "cuda_available": False,
    "architectures": [],
    "capabilities": [],
}


def smi(old: str, new: str) -> dict[str, object]:
    return {"gpus": parse_gpus(SMI.replace(old, new, 1))}


def test_a_healthy_machine_has_no_findings() -> None:
    assert findings(HEALTHY) == ()


def test_unreadable_facts_are_no_findings() -> None:
    """As on systems without /dev/shm, limits or cgroups."""
    unread = dict.fromkeys(
        ("shared_memory_bytes", "file_limit", "locked_memory_limit", "memory_limit_bytes", "core_quota", "disk_free_bytes")
    )
    assert findings(replace(HEALTHY, infiniband=True, **unread)) == ()


def test_kernels_run_on_later_capabilities_of_the_same_major_version() -> None:
    def warned(*capabilities: str) -> bool:
        torch = {**TORCH, "architectures": ["sm_80", "sm_90a"], "capabilities": list(capabilities)}
        return any(found.code == "architecture" for found in findings(replace(HEALTHY, torch=torch)))

    assert not warned("sm_80", "sm_86", "sm_89")
    assert warned("sm_75")
    assert warned("sm_90")  # kernels for sm_90a run there, but a build has others, too


@pytest.mark.parametrize(
    ("change", "level", "code", "words"),
    [
        ({"system": "darwin"}, "error", "system", "run on Linux"),
        ({"python": (3, 10)}, "error", "python", "Python 3.10 is older than 3.11"),
        ({"packages": {**HEALTHY.packages, "torch": ""} | {"torch": "2.8.1"}}, "error", "torch-old", "2.8.1 is older than 2.11"),
        ({"packages": {**HEALTHY.packages, "torch": "2.14.0"}}, "info", "torch-new", "newer than 2.13"),
        ({"torch": None, "torch_error": "libcudart.so: missing"}, "error", "torch-broken", "libcudart.so: missing"),
        ({"smi_error": "Driver/library version mismatch", "gpus": ()}, "error", "driver", "version mismatch"),
        ({"torch": CPU_TORCH}, "error", "torch-cpu", "on a machine with 2 GPUs"),
        ({"gpus": ()}, "info", "no-gpu", "trials run on CPU"),
        (smi("580.82.07", "570.10.01"), "error", "driver-old", "older than 580.65, which CUDA 13.0 needs"),
        ({"torch": {**TORCH, "cuda_available": False}}, "error", "cuda-unavailable", "CUDA_VISIBLE_DEVICES"),
        ({"torch": {**TORCH, "capabilities": ["sm_120"]}}, "warning", "architecture", "sm_120"),
        ({"torch": {**TORCH, "nccl": ""}}, "error", "nccl-missing", "NCCL"),
        ({"torch": {**TORCH, "gloo": False}}, "error", "gloo-missing", "gloo"),
        ({"torch": {**TORCH, "no_peer_access": 2}}, "info", "peer-access", "through host memory"),
        (smi("Enabled, 0", "Enabled, 3"), "error", "ecc", "GPU 0 has had memory errors"),
        (smi("Not Active", "Active"), "warning", "throttled", "hw_thermal_slowdown"),
        (smi("Enabled", "Disabled"), "info", "persistence", "nvidia-smi -pm 1"),
        (smi("16, 16", "4, 16"), "warning", "pcie-width", "4 of 16"),
        (smi("16, 16, 0", "16, 16, 9000"), "warning", "memory-used", "9000 MiB"),
        ({"environment": {**HEALTHY.environment, "GLOO_SOCKET_IFNAME": "ib0"}}, "error", "interface", "no interface ib0"),
        ({"environment": {**HEALTHY.environment, "NCCL_SOCKET_IFNAME": "ib"}}, "error", "interface", "no interface ib"),
        ({"hostname_resolves": False}, "warning", "hostname", "/etc/hosts"),
        ({"can_listen": False}, "error", "ports", "127.0.0.1"),
        ({"port_is_free": False}, "info", "port-taken", "29500"),
        ({"shared_memory_bytes": 64 * MIB}, "warning", "shared-memory", "--shm-size"),
        ({"file_limit": 1024}, "warning", "file-limit", "ulimit -n"),
        ({"infiniband": True, "locked_memory_limit": 8 * MIB}, "error", "locked-memory", "ulimit -l unlimited"),
        ({"memory_limit_bytes": 16 * GIB}, "warning", "memory-limit", "--host-memory"),
        ({"core_quota": 2.0}, "warning", "core-quota", "2 of 32 cores"),
        ({"disk_free_bytes": 5 * GIB}, "warning", "disk", "/data has 5.0 GiB left"),
        ({"disk_free_bytes": 5 * MIB}, "error", "disk", "/data"),
        ({"clock_synchronised": False}, "info", "clock", "chrony"),
        ({"environment": {"OMP_NUM_THREADS": "64"}}, "warning", "threads", "64 on 32 cores"),
        ({"environment": {}}, "info", "threads", "one thread"),
        ({"numa_nodes": 2}, "info", "numa", "numactl"),
    ],
)
def test_each_fault_is_one_finding_with_a_next_step(change: dict[str, object], level: str, code: str, words: str) -> None:
    (found,) = findings(replace(HEALTHY, **change))
    assert (found.level.value, found.code) == (level, code)
    assert words in str(found)
    assert found.do or found.level is Level.INFO


@pytest.mark.parametrize("names", ["eth", "^docker,lo", "=eth0", "eth0,eth1"])
def test_nccl_accepts_prefixes_and_exclusions_of_interfaces(names: str) -> None:
    assert findings(replace(HEALTHY, environment={**HEALTHY.environment, "NCCL_SOCKET_IFNAME": names})) == ()


def test_a_missing_torch_is_a_warning_only() -> None:
    bare = {name: found for name, found in HEALTHY.packages.items() if name != "torch"}
    (found,) = findings(replace(HEALTHY, packages=bare, torch=None, torch_error="No module named torch"))
    assert (found.level, found.code) == (Level.WARNING, "torch-missing")
    assert "pip install" in found.do


def test_findings_are_sorted_by_severity() -> None:
    levels = [found.level for found in findings(replace(HEALTHY, numa_nodes=2, can_listen=False, file_limit=1024))]
    assert levels == [Level.ERROR, Level.WARNING, Level.INFO]


@pytest.mark.torch
def test_this_machine_is_examined(tmp_path: Path) -> None:
    seen = examine(tmp_path)
    assert seen.torch is not None
    assert seen.torch["gloo"]
    assert seen.interfaces
    assert seen.disk_free_bytes
    without = replace(seen, environment={**seen.environment, "GLOO_SOCKET_IFNAME": "nowhere0"})
    assert "interface" in {finding.code for finding in findings(without)}


@pytest.mark.full
@pytest.mark.torch
def test_the_doctor_command_lists_findings_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere0")
    assert main(["doctor", "--folder", str(tmp_path), "--json"]) == 1
    listed = json.loads(capsys.readouterr().out)
    assert listed[0]["level"] == "error"
    assert "interface" in {finding["code"] for finding in listed}
