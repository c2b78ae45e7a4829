"""Heterogeneous clusters: read from files, validated, with the slowest figures."""

from pathlib import Path

import pytest

from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.errors import FileError
from strategist.profiles.cluster import resolve_cluster, scaled
from strategist.profiles.hardware import load_device
from strategist.profiles.heterogeneous_clusters import node_differences, without_group
from strategist.units import GIB

MIXED = """
name: old and new
groups:
  - {nodes: 2, device: h100}
  - {nodes: 1, device: a100-40gb}
"""


def read(tmp_path: Path, text: str) -> Cluster:
    file = tmp_path / "rack.yaml"
    file.write_text(text)
    return resolve_cluster(str(file))


def test_a_heterogeneous_cluster_has_the_least_memory_and_the_slowest_figures(tmp_path: Path) -> None:
    cluster = read(tmp_path, MIXED)
    (h100, fast), (a100, slow) = load_device("h100-sxm"), load_device("a100-40gb")
    assert (cluster.name, cluster.nodes, cluster.devices) == ("old and new", 3, 24)
    assert [(group.nodes, group.device.name) for group in cluster.groups] == [(2, "H100-SXM"), (1, "A100-40GB")]
    device = cluster.device
    assert device.name == "H100-SXM+A100-40GB"
    assert (device.usable_memory_bytes, device.peak_flops, device.matmul) == (
        a100.usable_memory_bytes,
        a100.peak_flops,
        a100.matmul,
    )
    assert device.memory_bytes_per_second == a100.memory_bytes_per_second < h100.memory_bytes_per_second
    assert (cluster.intra, cluster.inter) == (slow.intra, slow.inter)
    assert cluster.host_bytes_per_second == min(fast.host_bytes_per_second, slow.host_bytes_per_second)
    assert cluster.peak("bf16") == 16 * h100.peak("bf16") + 8 * a100.peak("bf16")
    assert codec.loads(Cluster, codec.dumps(cluster)) == cluster


def test_price_and_power_are_means_over_all_devices(tmp_path: Path) -> None:
    cluster = read(tmp_path, MIXED)
    (h100, _), (a100, _) = load_device("h100-sxm"), load_device("a100-40gb")
    for name in ("price_per_hour", "power_watts"):
        assert getattr(cluster.device, name) * 24 == pytest.approx(16 * getattr(h100, name) + 8 * getattr(a100, name))
    unpriced = read(tmp_path, MIXED.replace("a100-40gb", "a100-pcie-80gb"))
    assert unpriced.device.price_per_hour is None
    assert unpriced.device.power_watts is not None


def test_a_speed_below_one_scales_a_groups_rates(tmp_path: Path) -> None:
    cluster = read(tmp_path, "device: h100\ngroups:\n  - {nodes: 3}\n  - {nodes: 1, speed: 0.8}\n")
    plain = resolve_cluster("4x8xH100")
    assert cluster.device.peak("bf16") == pytest.approx(0.8 * plain.device.peak("bf16"))
    assert cluster.device.memory_bytes_per_second == pytest.approx(0.8 * plain.device.memory_bytes_per_second)
    assert cluster.device.launch_seconds == pytest.approx(plain.device.launch_seconds / 0.8)
    assert (cluster.device.usable_memory_bytes, cluster.inter) == (plain.device.usable_memory_bytes, plain.inter)
    assert cluster.peak("bf16") == plain.peak("bf16")


def test_one_slow_network_port_changes_only_the_link_between_nodes(tmp_path: Path) -> None:
    text = "device: h100\ngroups:\n  - {nodes: 3}\n  - {nodes: 1, inter: {bytes_per_second: 11 GB/s, latency_seconds: 50us}}\n"
    cluster, plain = read(tmp_path, text), resolve_cluster("4x8xH100")
    assert (cluster.inter.bytes_per_second, cluster.inter.latency_seconds) == pytest.approx((11e9, 50e-6))
    assert cluster.inter.pair_bytes_per_second == plain.inter.pair_bytes_per_second
    assert (cluster.device, cluster.intra) == (plain.device, plain.intra)


def test_keys_besides_groups_apply_to_all_groups(tmp_path: Path) -> None:
    shared = "gpus_per_node: 4\ninter: {bytes_per_second: 10 GB/s}\nhost_memory_bytes: 512GiB\n"
    cluster = read(tmp_path, shared + MIXED)
    assert (cluster.gpus_per_node, cluster.devices, cluster.host_memory_bytes) == (4, 12, 512 * GIB)
    assert {group.inter.bytes_per_second for group in cluster.groups} == {10e9}


def test_each_difference_of_nodes_is_one_sentence(tmp_path: Path) -> None:
    pace, memory, across, inside = node_differences(read(tmp_path, MIXED))
    assert pace.startswith("8 of 24 devices are A100-40GB: they pace the others")
    assert memory == "8 of 24 devices hold 38.4 GiB each, the largest 77.9 GiB."
    assert "reach other nodes at 22 GB/s" in across
    assert "reach each other at 230 GB/s" in inside
    (hot,) = node_differences(read(tmp_path, "device: h100\ngroups:\n  - {nodes: 3}\n  - {nodes: 1, speed: 0.8}\n"))
    assert "8 of 32 devices are H100-SXM that run at 80% of their speed" in hot
    assert list(node_differences(resolve_cluster("4x8xH100"))) == []


def test_removing_a_group_restores_the_speed_of_the_others(tmp_path: Path) -> None:
    mixed = read(tmp_path, MIXED)
    alone = without_group(mixed, mixed.groups[1])
    plain = resolve_cluster("2x8xH100")
    assert (alone.nodes, alone.device, alone.intra, alone.inter, alone.groups) == (2, plain.device, plain.intra, plain.inter, ())
    assert scaled(mixed, 1, 8).groups == ()


def test_the_example_cluster_file_is_valid() -> None:
    cluster = resolve_cluster(str(Path(__file__).parents[2] / "examples" / "cluster-unlike-nodes.yaml"))
    assert [group.nodes for group in cluster.groups] == [2, 1, 1]
    assert len(list(node_differences(cluster))) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("groups: []\n", r"rack.yaml:1:\d+: groups is a list"),
        ("groups: {nodes: 2, device: h100}\n", "groups is a list"),
        ("groups: [2]\n", r"rack.yaml:1:\d+: .*must be a mapping"),
        ("nodes: 3" + MIXED, "leave nodes out"),
        ("groups:\n  - {nodes: 2}\n", "key 'device' is missing"),
        ("groups:\n  - {nodes: 2, device: h10O}\n", r"rack.yaml:2:\d+: .*did you mean.*h100"),
        ("groups:\n  - {nodes: 2, device: h100, sped: 0.5}\n", r"rack.yaml:2:\d+: unknown key 'sped'; did you mean speed"),
        ("groups:\n  - {nodes: 0, device: h100}\n", "at least one device"),
        ("groups:\n  - {nodes: 1, device: h100, speed: 0}\n", "speed 0.0: is above 0 and at most 1"),
        ("groups:\n  - {nodes: 1, device: h100, speed: 2}\n", "speed 2.0: is above 0 and at most 1"),
        ("groups:\n  - {nodes: 1, device: h100, speed: fast}\n", r"rack.yaml:2:\d+: speed 'fast' is not a number"),
        ("groups:\n  - {nodes: 1, device: h100, gpus_per_node: 4}\n", "unknown key 'gpus_per_node'"),
        ("groups:\n  - {nodes: 1, device: h100}\n  - {nodes: 1, device: gb200}\n", "8 and 72 devices a node.*write gpus_per_node"),
        ("gpus_per_node: 4\ngroups:\n  - {device: h100}\n  - {device: cpu}\n", "cpu and cuda"),
    ],
)
def test_invalid_groups_raise_one_line_with_the_files_name(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FileError, match=words) as error:
        read(tmp_path, text)
    assert "rack.yaml" in str(error.value)
    assert "\n" not in str(error.value)
