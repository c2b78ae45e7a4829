"""Process groups: bandwidth and latency by the links that their ranks cross."""

from dataclasses import replace

import numpy as np
import pytest

from cost.situations import INTER, INTRA, cluster
from strategist.cost.process_groups import group
from strategist.profiles.cluster import resolve_cluster


def test_a_ring_over_two_nodes_has_one_network_hop() -> None:
    """16 ranks on two nodes of eight: one network hop among 15."""
    found = group(np.array([16.0]), np.array([1.0]), cluster(2))
    assert found.hop_seconds[0] == pytest.approx((1 * INTER.latency_seconds + 14 * INTRA.latency_seconds) / 15)


def test_collective_bandwidth_falls_with_each_doubling_of_nodes() -> None:
    """Published reduce-scatter of H100: 360 GB/s of bus bandwidth on 4 nodes, 260 on 128, with 8 ports each."""
    on = cluster(
        128, inter=replace(INTER, bytes_per_second=45e9, lost_per_doubling=0.06), intra=replace(INTRA, bytes_per_second=4e11)
    )
    rates = [float(group(np.array([8.0 * nodes]), np.array([1.0]), on).bytes_per_second[0]) for nodes in (2, 4, 8, 16, 32, 64, 128)]
    assert rates[0] == rates[1] == pytest.approx(360e9)
    assert rates[2:] == pytest.approx([345e9, 320e9, 300e9, 280e9, 260e9], rel=0.03)


def test_in_switch_reduction_speeds_up_all_reduce_only() -> None:
    """8 x H100: 479 GB/s of bus bandwidth with NVLS, 370 by ring (published nccl-tests)."""
    on = cluster(intra=replace(INTRA, bytes_per_second=370e9, reduce_bytes_per_second=479e9, in_switch=True))
    plain = replace(on, intra=replace(on.intra, reduce_bytes_per_second=None))
    eight, one, size = np.array([8.0]), np.array([1.0]), np.array([8e9])
    assert group(eight, one, on).reduce(size)[0] / group(eight, one, plain).reduce(size)[0] == pytest.approx(370 / 479, rel=0.01)
    assert group(eight, one, on).gather(size)[0] == group(eight, one, plain).gather(size)[0]


@pytest.mark.parametrize(
    ("cluster_name", "ranks", "size", "published_seconds"),
    [
        ("2x8xH100", 16, 64, 601.5e-6),
        ("2x8xH100", 16, 128, 870.3e-6),
        ("32x4xGH200", 128, 16, 1541e-6),
        ("32x4xGH200", 128, 64, 3177e-6),
        ("128x4xGH200", 512, 16, 2215e-6),
        ("128x4xGH200", 512, 128, 5886e-6),
    ],
)
def test_all_reduces_of_a_bucket_take_what_was_published(
    cluster_name: str, ranks: int, size: int, published_seconds: float
) -> None:
    """MiB between nodes, of awslabs/awsome-distributed-ai (EFA) and boeschf/nccl-benchmark-on-alps-2025 (Slingshot)."""
    on = resolve_cluster(cluster_name)
    seconds = group(np.array([float(ranks)]), np.ones(1), on).reduce(np.array([size * 2.0**20]))[0]
    assert seconds == pytest.approx(published_seconds, rel=0.25)


def test_a_group_in_a_mesh_uses_only_the_links_between_its_devices() -> None:
    """MI300X: 48 GB/s of bus bandwidth with two devices, 313 with eight (published all-reduces)."""
    mesh = replace(INTRA, bytes_per_second=313e9, pair_bytes_per_second=48e9, meshed_devices=8)
    two, four, eight = group(np.array([2.0, 4.0, 8.0]), np.ones(3), cluster(intra=mesh)).bytes_per_second
    assert (two, eight) == (48e9, 313e9)
    assert two < four < eight
    across = group(np.array([4.0]), np.array([4.0]), cluster(2, intra=mesh, inter=replace(INTER, bytes_per_second=1e9)))
    assert across.bytes_per_second[0] == 2e9  # two members a node use two of its ports
