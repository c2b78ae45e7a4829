"""Clusters by name and from files."""

from dataclasses import replace

import pytest

from strategist.errors import FileError, InputError, StrategistError
from strategist.profiles.cluster import resolve_cluster, scaled
from strategist.units import GIB


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "device"),
    [
        ("8x24GB", 1, 8, "RTX4090"),
        ("8x24GiB", 1, 8, "RTX4090"),
        ("8X24g", 1, 8, "RTX4090"),
        ("4x80GB", 1, 4, "H100-SXM"),
        ("8xRTX4090", 1, 8, "RTX4090"),
        (" 8 x RTX 4090 ", 1, 8, "RTX4090"),
        ("1xh200", 1, 1, "H200"),
        ("64xH100", 8, 8, "H100-SXM"),
        ("16x8xH100", 16, 8, "H100-SXM"),
        ("2x4xa100-40gb", 2, 4, "A100-40GB"),
        ("4xcpu", 1, 4, "CPU"),
        ("64xGB200", 1, 64, "GB200"),
        ("144xGB200", 2, 72, "GB200"),
    ],
)
def test_clusters_from_counts_and_device_names(text, nodes, per_node, device):
    cluster = resolve_cluster(text)
    assert (cluster.nodes, cluster.gpus_per_node, cluster.device.name) == (nodes, per_node, device)


def test_a_memory_size_states_the_assumed_device_and_how_to_change_it():
    device, node = resolve_cluster("8x24GB").assumed
    assert "24GB is resolved to RTX4090" in device
    assert "8xRTX3090" in device
    assert "cluster file" in node
    assert len(resolve_cluster("8xRTX4090").assumed) == 1


def test_a_24_gib_node_uses_the_measured_link_rate_not_that_of_pcie():
    assert resolve_cluster("8x24GB").intra.bytes_per_second == 2.5e9


def test_default_host_memory_of_a_node_applies_unless_given():
    cluster = resolve_cluster("4xH100")
    assert "8 x H100-SXM has 2.0 TiB of host memory" in cluster.assumed[-1]
    assert cluster.host_memory_bytes == 2048 * GIB
    assert resolve_cluster("2x16xH100").host_memory_bytes == 4096 * GIB
    assert resolve_cluster("8x24GB").host_memory_bytes is None
    given = resolve_cluster("4xH100", 512 * GIB)
    assert (given.host_memory_bytes, len(given.assumed)) == (512 * GIB, 1)


def test_given_host_memory_is_per_node():
    assert resolve_cluster("8x24GB", 512 * GIB).host_memory_bytes == 512 * GIB


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8x", "the device is missing"),
        ("0xH100", "0 is not a positive whole number"),
        ("00xH100", "00 is not a positive whole number"),
        ("-1xH100", "-1 is not a positive whole number"),
        ("axH100", "a is not a positive whole number"),
        ("1.5xH100", "1.5 is not a positive whole number"),
        ("٣xH100", "is not a positive whole number"),
        ("2x0xH100", "0 is not a positive whole number"),
        ("9" * 5000 + "xH100", "at most 6 digits"),
        ("8xFOO", "no device is named 'FOO'.*rtx4090"),
        ("2x7900XTX", "no device is named '7900XTX'"),
        ("2x8xFOO", "no device is named 'FOO'"),
        ("8xH10O", "no device is named 'H10O'.*did you mean.*h100"),
        ("8x23GB", "no device is assumed for 23GB.*24GB"),
        ("12xH100", "12 is not a multiple of 8.*take 8 or 16.*2x8xH100-SXM"),
        ("H100", "a count and a device are needed"),
        ("h10", "no device is named 'h10'.*did you mean h100.*strategist hardware list"),
        ("8", "a count and a device are needed"),
        ("x", "a count and a device are needed"),
        ("", "a count and a device are needed"),
        ("2x2x2xH100", "no device is named"),
        ("7xNVIDIA A100-SXM4-80GB MIG 1g.10gb", "a MIG slice has a share of its GPU.*strategist profile -o"),
        ("1xnvidia.com/mig-3g.40gb", "a MIG slice has a share of its GPU"),
        ("nothing.yaml", "cannot be read"),
    ],
)
def test_an_invalid_cluster_raises_one_line_with_value_and_next_step(text, words):
    with pytest.raises(StrategistError, match=words) as error:
        resolve_cluster(text)
    assert "\n" not in str(error.value)
    assert text[:100] in str(error.value)


def test_scaled_changes_only_the_size():
    cluster = resolve_cluster("8x24GB", 512 * GIB)
    larger = scaled(cluster, 4, 8)
    assert (larger.devices, larger.name) == (32, "4x8xRTX4090")
    assert (larger.device, larger.inter, larger.host_memory_bytes) == (cluster.device, cluster.inter, 512 * GIB)


def write(tmp_path, text):
    file = tmp_path / "rack.yaml"
    file.write_text(text)
    return str(file)


def test_a_cluster_file_overrides_the_devices_default_node(tmp_path):
    text = """
name: our rack
device: {name: rtx4090, usable_memory_bytes: 22GiB}
nodes: 2
gpus_per_node: 4
intra: {bytes_per_second: 20 GB/s}
inter: {name: 100 GbE, bytes_per_second: 2.5 GB/s, pair_bytes_per_second: 10 GB/s, latency_seconds: 20us}
host_memory_bytes: 512GiB
source: measured on a Tuesday
"""
    cluster, plain = resolve_cluster(write(tmp_path, text)), resolve_cluster("8xRTX4090")
    assert (cluster.name, cluster.nodes, cluster.gpus_per_node) == ("our rack", 2, 4)
    assert cluster.device.usable_memory_bytes == 22 * GIB
    assert cluster.device.peak_flops == plain.device.peak_flops
    assert cluster.intra.bytes_per_second == 20e9
    assert cluster.intra.latency_seconds == plain.intra.latency_seconds
    assert cluster.intra.line_bytes_per_second == plain.intra.line_bytes_per_second
    assert (cluster.inter.name, cluster.inter.bytes_per_second) == ("100 GbE", 2.5e9)
    assert cluster.inter.line_bytes_per_second is None, "unknown for another link"
    assert cluster.host_memory_bytes == 512 * GIB
    assert cluster.host_bytes_per_second == plain.host_bytes_per_second
    assert "host_bytes_per_second" in cluster.assumed[0]
    assert resolve_cluster(write(tmp_path, text), GIB).host_memory_bytes == GIB


def test_devices_can_be_shares_of_one_gpu(tmp_path):
    file = tmp_path / "shares.yaml"
    file.write_text(
        "{device: {name: H200, memory_bytes: 64 GiB, usable_memory_bytes: 60 GiB}, gpus_per_node: 2, devices_share_one_gpu: true}"
    )
    cluster = resolve_cluster(str(file))
    assert (cluster.gpus_for(2), cluster.gpu_of(1)) == (1, 0)
    file.write_text("{device: H200, nodes: 2, gpus_per_node: 2, devices_share_one_gpu: true}")
    with pytest.raises(FileError, match="devices_share_one_gpu: one GPU is in one node"):
        resolve_cluster(str(file))
    whole = resolve_cluster("2xH200")
    assert (whole.gpus_for(2), whole.gpu_of(1)) == (2, 1)


def test_a_cluster_file_may_name_only_a_device(tmp_path):
    cluster = resolve_cluster(write(tmp_path, "device: h100\n"))
    assert (cluster.name, cluster.nodes, cluster.gpus_per_node, cluster.device.name) == ("rack", 1, 8, "H100-SXM")


OWN = """
device:
  name: X1
  kind: cuda
  memory_bytes: 10GiB
  usable_memory_bytes: 9GiB
  peak_flops: {fp32: 10 TFLOPS}
  memory_bytes_per_second: 500 GB/s
  matmul: {points: [[1e9, 0.5]], origin: "assumed: a guess"}
  attention_efficiency: 0.4
  memory_efficiency: 0.8
  launch_seconds: 5us
gpus_per_node: 2
intra: &LINK
inter: &LINK
host_bytes_per_second: 10 GB/s
host_optimizer_bytes_per_second: 50 GB/s
""".replace("&LINK", "{name: wire, bytes_per_second: 1 GB/s, pair_bytes_per_second: 1 GB/s, latency_seconds: 5us}")


def test_a_cluster_file_can_describe_an_unknown_device(tmp_path):
    cluster = resolve_cluster(write(tmp_path, OWN))
    assert (cluster.device.name, cluster.devices, cluster.assumed) == ("X1", 2, ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: 2\n", "key 'device' is missing"),
        ("device: [h100]\n", "device needs a name"),
        ("device: h10O\n", "rack.yaml:1:9: .*did you mean.*h100"),
        ("device: h100\nnode: 2\n", "rack.yaml:2:1: unknown key 'node'; did you mean nodes"),
        ("device: h100\nnodes: two\n", "nodes: int is needed"),
        ("device: h100\nnodes: 0\n", "at least one device"),
        ("device: h100\nintra: {speed: 3}\n", "unknown key 'speed'"),
        ("device: h100\nintra: fast\n", "intra: an object is needed"),
        ("device: h100\nhost_memory_bytes: much\n", "rack.yaml:2:20: "),
        ("device: {name: h100, usable_memory_bytes: 81GiB}\n", "usable_memory_bytes"),
        ("device: {name: h100, matmul: {points: [], origin: x}}\n", "curve"),
        (OWN.replace("  launch_seconds: 5us\n", ""), "'launch_seconds' is missing"),
        (OWN.replace("gpus_per_node: 2\n", ""), "'gpus_per_node' is missing"),
        (OWN.replace("fp32: 10", "bf16: 10"), "needs fp32"),
        ("- device\n", "must be a mapping"),
    ],
)
def test_an_invalid_cluster_file_raises_one_line_with_its_name(tmp_path, text, words):
    with pytest.raises(FileError, match=words) as error:
        resolve_cluster(write(tmp_path, text))
    assert "rack.yaml" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Installs an ``nvidia-smi`` that runs the given shell lines as the first one on PATH."""

    def install(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


@pytest.mark.parametrize("mode", ["[N/A]", "Disabled"])
def test_local_resolves_to_the_gpus_of_nvidia_smi(smi, mode):
    smi(f"echo 'NVIDIA GeForce RTX 4090, {mode}'; echo 'NVIDIA GeForce RTX 4090, {mode}'")
    cluster = resolve_cluster("local")
    assert (cluster.nodes, cluster.gpus_per_node, cluster.device.name) == (1, 2, "RTX4090")
    assert cluster.host_memory_bytes is not None
    assert "2 x RTX 4090" in cluster.assumed[0]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo NVIDIA H200; echo NVIDIA A10", "the GPUs here differ"),
        ("echo NVIDIA Quux 9", "no device is named 'Quux 9'"),
        ("echo NVIDIA H100 80GB HBM3, Enabled", "a MIG slice has a share of its GPU"),
        ("echo NVIDIA-SMI has failed >&2; exit 9", "NVIDIA-SMI has failed"),
    ],
)
def test_unusable_local_gpus_raise_a_one_line_error(smi, script, words):
    smi(script)
    with pytest.raises(InputError, match=words) as error:
        resolve_cluster("local")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("script", [None, "exit 0"])
def test_local_without_gpus_is_one_cpu_rank_per_core(smi, tmp_path, monkeypatch, script):
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        smi(script)
    cluster = resolve_cluster("local")
    assert (cluster.nodes, cluster.device.kind) == (1, "cpu")
    assert cluster.devices >= 1
    assert cluster.host_memory_bytes is not None
    assert cluster.device.memory_bytes * cluster.devices <= cluster.host_memory_bytes


def test_a_link_faster_than_its_line_rate_is_refused(tmp_path):
    text = "device: h100-sxm\ninter: {bytes_per_second: 60 GB/s}\n"
    with pytest.raises(StrategistError, match=r"60 GB/s|6e\+10.*line rate") as error:
        resolve_cluster(write(tmp_path, text))
    assert "rack.yaml" in str(error.value)


def test_the_wording_of_assumptions_does_not_affect_equality():
    """A study can be resumed after a release that words them differently."""
    cluster = resolve_cluster("8x24GB")
    assert cluster.assumed
    assert replace(cluster, assumed=("other words",)) == cluster


@pytest.mark.parametrize("text", ["2x4090,2x3090", "4xA100 + 4xH100", "8xA100 and 8xH100"])
def test_several_kinds_of_devices_are_described_in_a_cluster_file(text):
    with pytest.raises(InputError, match=r"names several kinds of devices.*a cluster file with a group for each"):
        resolve_cluster(text)
