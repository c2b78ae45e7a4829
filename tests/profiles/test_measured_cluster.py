"""A machine's measurements as a cluster file, which resolves to the measured values."""

from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract import codec
from strategist.contract.cluster import Curve
from strategist.contract.machine import LAYER_KERNELS, AttentionSample, CollectiveSample, MachineRecord, MatmulSample
from strategist.cost.layer_flops import BACKWARD_KERNELS, FORWARD_KERNELS
from strategist.errors import InputError
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.hardware import load_device
from strategist.profiles.local_machine import profile_path
from strategist.profiles.measured_cluster import cluster_data, fabric, fit_link, write

RATE, LATENCY = 2e9, 1e-4
SIZES = (2**12, 2**16, 2**20, 2**24)


def sample(collective: str, size: int, ranks: int = 4) -> CollectiveSample:
    """A sample that follows the cost model's formula exactly."""
    passes = 2 if collective == "all_reduce" else 1
    seconds = passes * (ranks - 1) * (size / ranks / RATE + LATENCY)
    return CollectiveSample(collective=collective, ranks=ranks, message_bytes=size, seconds=seconds)


def matmul(dtype: str, side: int, rate: float) -> MatmulSample:
    return MatmulSample(dtype=dtype, rows=side, inner=side, columns=side, seconds=2 * side**3 / rate)


RECORD = MachineRecord(
    device_kind="cpu", device_name="CPU", ranks=4, memory_bytes=8 * 2**30, usable_memory_bytes=8 * 2**30,
    matmuls=(
        matmul("fp32", 64, 2e10), matmul("fp32", 512, 1e11), matmul("bf16", 64, 3e10), matmul("bf16", 512, 3e11),
        replace(matmul("fp32", 512, 2.5e10), rows=256, columns=1024),
    ),
    attention=(
        AttentionSample(dtype="fp32", batch=1, heads=8, seq_len=512, head_size=64, seconds=7 * 8 * 512**2 * 64 / 2e10),
        AttentionSample(dtype="bf16", batch=1, heads=8, seq_len=512, head_size=64, seconds=7 * 8 * 512**2 * 64 / 3e10),
    ),
    streaming_bytes_per_second=2e10, elementwise_bytes_per_second=5e9, layer_seconds=7e-4, host_bytes_per_second=1e10,
    host_optimizer_bytes_per_second=2e10,
    collectives=(
        *(sample(name, size) for name in ("all_gather", "reduce_scatter", "all_reduce") for size in SIZES),
        CollectiveSample(collective="p2p", ranks=2, message_bytes=2**24, seconds=2**24 / 4e9),
    ),
    versions={"torch": "2.13.0"},
)  # fmt: skip


def test_profiled_kernels_per_layer_equal_the_cost_models_count() -> None:
    assert LAYER_KERNELS == FORWARD_KERNELS + BACKWARD_KERNELS


def test_curves_interpolate_linearly_in_the_logarithm_of_size() -> None:
    curve = Curve(points=((100.0, 0.2), (10_000.0, 0.6)), origin="assumed: a test")
    assert [curve.at(size) for size in (1, 100, 1000, 10_000, 10**9)] == pytest.approx([0.2, 0.2, 0.4, 0.6, 0.6])


@pytest.mark.parametrize(("collective", "share"), [("all_reduce", 1.5), ("all_gather", 0.75), ("broadcast", 1.0), ("gather", 0.75)])
def test_bus_bandwidth_follows_the_definition_of_nccl_tests(collective: str, share: float) -> None:
    found = CollectiveSample(collective=collective, ranks=4, message_bytes=1000, seconds=0.5)
    assert found.bus_bytes_per_second == pytest.approx(2000 * share)


def test_the_cluster_file_has_the_measured_rates(tmp_path: Path) -> None:
    write(RECORD, tmp_path / "here.yaml")
    cluster = resolve_cluster(str(tmp_path / "here.yaml"))
    device = cluster.device
    assert (cluster.devices, device.kind, device.peak("bf16"), device.peak("fp32")) == (4, "cpu", 3e11, 1e11)
    assert device.of_type("fp32", 512).matmul.points == (
        (524300.0, 0.2),
        (268400000.0, 0.5),
    )  # geometric mean of shares 1 and 1/4
    assert device.of_type("bf16", 512).matmul.points[0][1] == pytest.approx(0.1)
    assert device.of_type("bf16", 512).matmul.origin.startswith("measured: ")
    assert [device.of_type(name, 512).attention_efficiency for name in ("fp32", "bf16")] == pytest.approx([0.2, 0.1])
    assert (device.memory_bytes_per_second, device.memory_efficiency, device.launch_seconds) == (2e10, 0.25, 4e-6)
    assert cluster.intra.bytes_per_second == pytest.approx(RATE, rel=1e-3)
    assert cluster.intra.latency_seconds == pytest.approx(LATENCY, rel=1e-3)
    assert cluster.intra.pair_bytes_per_second == pytest.approx(4e9, rel=1e-3)
    assert codec.load(MachineRecord, tmp_path / "here.json") == RECORD


def test_an_unknown_gpu_is_described_in_full(tmp_path: Path) -> None:
    unknown = replace(RECORD, device_kind="cuda", device_name="NVIDIA Future 9000", topology="")
    write(unknown, tmp_path / "here.yaml")
    cluster = resolve_cluster(str(tmp_path / "here.yaml"))
    assert (cluster.device.name, cluster.device.kind, cluster.device.overlaps) == ("NVIDIA Future 9000", "cuda", True)
    assert cluster.inter.source.startswith("assumed: there is one node")


def test_an_unmeasured_fp8_peak_keeps_its_ratio_to_bf16() -> None:
    record = replace(
        RECORD, device_kind="cuda", device_name="NVIDIA H100 80GB HBM3",
        matmuls=(matmul("bf16", 64, 3e13), matmul("bf16", 8192, 6e14)),
        attention=tuple(sample for sample in RECORD.attention if sample.dtype == "bf16"),
    )  # fmt: skip
    sheet = load_device("h100-sxm")[0].peak_flops
    peaks = cluster_data(record)["device"]["peak_flops"]
    assert peaks["fp8"] / peaks["bf16"] == pytest.approx(sheet["fp8"] / sheet["bf16"], rel=1e-3)
    measured = cluster_data(replace(record, matmuls=(*record.matmuls, matmul("fp8", 8192, 1e15))))["device"]
    assert measured["peak_flops"]["fp8"] == 1e15


def test_noisy_samples_give_positive_rates() -> None:
    flat = [
        replace(sample("all_gather", size), seconds=seconds) for size, seconds in zip(SIZES, (4e-3, 2e-3, 1e-3, 9e-4), strict=True)
    ]
    steep = [
        replace(sample("all_gather", size), seconds=seconds) for size, seconds in zip(SIZES, (1e-9, 1e-3, 1e-1, 9.0), strict=True)
    ]
    for samples in (flat, steep):
        latency, rate = fit_link(samples)
        assert latency > 0
        assert rate > 0


def test_a_cluster_file_must_end_in_yaml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.yaml"):
        write(RECORD, tmp_path / "here.json")


def test_local_uses_the_measured_profile_if_the_machine_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")  # no nvidia-smi
    seen = resolve_cluster("local")
    assert "strategist profile measures them" in seen.assumed[-1]
    profile_path().parent.mkdir()
    write(replace(RECORD, ranks=seen.devices), profile_path())
    measured = resolve_cluster("local")
    assert measured.device.launch_seconds == 4e-6
    assert "measured on this machine" in measured.assumed[0]
    write(replace(RECORD, ranks=seen.devices + 1), profile_path())
    assert "is not used" in resolve_cluster("local").assumed[-1]


NVLINK = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPXB\t0-55\t0
GPU1\tNV18\t X \tSYS\t0-55\t0
NIC0\tPXB\tSYS\t X
"""


@pytest.mark.parametrize(
    ("topology", "found"),
    [
        (NVLINK, "nvlink"),
        (NVLINK.replace("NV18", "PIX"), "pcie"),
        (NVLINK.replace("NV18", "SYS"), "pcie_via_host"),
        ("\tGPU0\nGPU0\t X \n", "other"),
        ("", "other"),
    ],
)
def test_the_fabric_is_read_from_the_topology_matrix(topology: str, found: str) -> None:
    assert fabric(topology) == found
