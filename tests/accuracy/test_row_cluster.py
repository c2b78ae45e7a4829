"""Clusters of published rows."""

import pytest

from strategist.accuracy.row_cluster import NETWORK_EFFICIENCY, cluster_of
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.profiles.hardware import load_device
from strategist.units import GIB
from tests.accuracy.published import made, row


def test_a_row_runs_on_the_profile_of_its_gpu():
    cluster = cluster_of(made())
    assert (cluster.device.name, cluster.devices, cluster.nodes) == ("H100-SXM", 8, 1)
    assert cluster.device.memory_bytes == 80 * GIB


def test_memory_distinguishes_variants_of_a_gpu():
    assert cluster_of(made(gpu="A100", gpu_mem_gb=40)).device.name == "A100-40GB"
    assert cluster_of(made(gpu="A100", gpu_mem_gb=80)).device.name == "A100-80GB"


def test_node_size_is_the_stated_one_reduced_to_divide_the_gpus():
    assert cluster_of(made(n_gpus=64, gpus_per_node=4)).nodes == 16
    assert cluster_of(made(n_gpus=64)).nodes == 8
    assert cluster_of(made(n_gpus=3, gpus_per_node=8)).nodes == 1
    assert cluster_of(made(n_gpus=12, gpus_per_node=8)).gpus_per_node == 6


def test_a_gb200_nvlink_domain_spans_hosts():
    assert cluster_of(made(gpu="GB200", n_gpus=8, gpus_per_node=4)).nodes == 1


def test_unstated_gpu_count_is_the_product_of_the_degrees():
    assert cluster_of(made(n_gpus=None, tp=2, pp=4, dp_shard=4)).devices == 32


def test_a_measured_link_overrides_the_profile():
    nvlink = cluster_of(row("mli_2x3090ti", "gpt2m-meg-dp2-nvlink"))
    pcie = cluster_of(row("mli_2x3090ti", "gpt2m-meg-dp2-pcie"))
    assert nvlink.intra.bytes_per_second == pytest.approx(NETWORK_EFFICIENCY * 52.8e9)
    assert pcie.intra.bytes_per_second == pytest.approx(NETWORK_EFFICIENCY * 6.2e9)


def test_network_bandwidth_is_per_node_unless_stated_per_gpu():
    shared = cluster_of(made(n_gpus=64, interconnect_inter="800 Gb/s RDMA")).inter
    own = cluster_of(made(n_gpus=64, interconnect_inter="RDMA 400 Gb/s per GPU")).inter
    assert shared.bytes_per_second == pytest.approx(NETWORK_EFFICIENCY * 100e9 / 8)
    assert own.bytes_per_second == pytest.approx(NETWORK_EFFICIENCY * 50e9)


def test_a_measured_network_rate_applies_to_collectives_only():
    text = "Omni-Path 400 Gb/s a node; all-reduce measured 40 Gb/s a node"
    link = cluster_of(made(n_gpus=64, interconnect_inter=text)).inter
    assert link.bytes_per_second == pytest.approx(5e9 / 8)
    assert link.pair_bytes_per_second == pytest.approx(NETWORK_EFFICIENCY * 50e9 / 8)


def test_a_stated_fabric_overrides_the_profile_only_if_it_differs():
    usual = load_device("rtx4090")[1].intra
    assert cluster_of(made(gpu="RTX 4090", interconnect_intra="PCIe 4.0 x16 (no NVLink)")).intra == usual
    assert cluster_of(made(gpu="H100", interconnect_intra="PCIe")).intra.fabric == "pcie"


def test_a_gpu_without_a_profile_is_skipped():
    with pytest.raises(Skipped) as skipped:
        cluster_of(row("roundpipe_8x4090_a800", "rp-910B-qwen3-1.7b"))
    assert skipped.value.reason is SkipReason.NO_DEVICE


def test_a_gpu_with_an_unstated_power_limit_is_skipped():
    assert cluster_of(made(gpu="RTX 3090", notes="3090s power limited to 280 W each")).device.name == "RTX3090"
    with pytest.raises(Skipped, match="power-limited"):
        cluster_of(made(gpu="B200", notes="single node 8xB200 (power limited)"))


def test_a_rate_equal_to_one_port_of_the_profile_is_per_gpu():
    """An H100's port has 400 Gb/s; GB200 hosts have four GPUs, whatever the size of their NVLink domain."""
    for text, line in (
        ("RoCE 400 Gbps", 50e9),
        ("400 Gb/s per GPU", 50e9),
        ("8x ConnectX-7 IB NDR 400Gb/s", 50e9),
        ("800 Gb/s RDMA", 12.5e9),
        ("EFA v2 3.2 Tb/s per node (32x EFA)", 50e9),
    ):
        assert cluster_of(made(n_gpus=64, interconnect_inter=text)).inter.line_bytes_per_second == pytest.approx(line), text
    rack = made(gpu="GB200", n_gpus=144, gpus_per_node=4, interconnect_inter="4x ConnectX-7 IB NDR 400Gb/s")
    assert cluster_of(rack).inter.line_bytes_per_second == pytest.approx(50e9)


def test_boards_of_four_gpus_have_no_switch():
    """Two of four A100 share four of twelve links; a node of eight, and a single node of four, have switches."""
    boards, node = (cluster_of(made(gpu="A100", n_gpus=32, gpus_per_node=size)).intra for size in (4, 8))
    assert (boards.meshed_devices, boards.pair_bytes_per_second) == (4, pytest.approx(node.bytes_per_second / 3))
    assert cluster_of(made(n_gpus=4, gpus_per_node=4)).intra == node_link("h100-sxm")
    assert cluster_of(made(gpu="RTX 4090", n_gpus=8, gpus_per_node=4)).intra.meshed_devices == 0


def node_link(stem):
    return load_device(stem)[1].intra
