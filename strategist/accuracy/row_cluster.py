"""Cluster of a published row: the profile of its GPU, with the node size and the links that the row states."""

import re
from dataclasses import replace
from functools import cache

from strategist.accuracy.row import Row
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.accuracy.text_columns import stated_rate
from strategist.contract.cluster import Cluster, Device, Link
from strategist.profiles import hardware
from strategist.units import GIB

NETWORK_EFFICIENCY = 0.9
"""Share of a network's nominal rate that collectives reach (NCCL on InfiniBand; assumed for other fabrics)."""

PCIE_X4_SHARE = 0.25
"""Share of a PCIe link's rate on a board with few lanes: 4 of 16."""

MAX_GPUS_OF_A_HOST = 16
"""Maximum number of GPUs in a host. A larger domain is a rack whose links join all its hosts, whatever the number of GPUs in
each.
"""

BOARD_GPUS = 4
"""Number of GPUs on NVIDIA's smaller boards, which links join pair by pair: only boards of eight have switches (NVIDIA HGX A100 and
HGX H100 4-GPU; JUWELS Booster, Leonardo, Perlmutter and Jean Zay have them). Several nodes that use four of eight GPUs each would
look the same, but are rare.
"""

UNSTATED_POWER_LIMIT = re.compile(r"power[ -]limited(?! to \d)")
"""A note that the GPU draws less than its board's limit, without saying how much: its clock is unknown."""

DEFAULT_GPUS = {"fp16": "v100-32gb"}
DEFAULT_GPU = "a100-80gb"
"""GPU of a row that names none: Volta for fp16, otherwise Ampere, which has bf16."""


def cluster_of(row: Row) -> Cluster:
    """The cluster of a row.

    Raises:
        Skipped: no profile describes its GPU or the power limit set on it, or the number of GPUs is not stated.
    """
    stem = hardware.find_measured_device(row.gpu, row.gpu_mem_gb) if row.gpu else DEFAULT_GPUS.get(row.precision, DEFAULT_GPU)
    if stem is None:
        raise Skipped(SkipReason.NO_DEVICE)
    if UNSTATED_POWER_LIMIT.search(row.notes):
        raise Skipped(SkipReason.NO_POWER_LIMIT)
    count = row.n_gpus or (row.tp or 1) * (row.pp or 1) * (row.dp_shard or 1) * (row.dp_replicate or 1) * (row.cp or 1)
    device, box = _device(stem)
    memory_bytes = device.memory_bytes
    if row.gpu_mem_gb and abs(row.gpu_mem_gb * GIB / memory_bytes - 1) > 0.2:
        device = replace(device, memory_bytes=int(row.gpu_mem_gb * GIB), usable_memory_bytes=int((row.gpu_mem_gb * GIB) * 0.96))
    domain_size = box.gpus_per_node if box.gpus_per_node > MAX_GPUS_OF_A_HOST else row.gpus_per_node or box.gpus_per_node
    per_node = min(domain_size, count)
    if count % per_node:
        per_node = next(size for size in range(per_node, 0, -1) if count % size == 0)
    boards = per_node == BOARD_GPUS < count and box.gpus_per_node == 2 * BOARD_GPUS
    box = box.shared_by(per_node)
    return Cluster(
        name=f"{count}x{device.name}",
        nodes=count // per_node,
        gpus_per_node=per_node,
        device=device,
        intra=_intra(row, _board_link(box.intra) if boards else box.intra),
        inter=_inter(row, box.inter, per_node),
        host_bytes_per_second=box.host_bytes_per_second,
        host_optimizer_bytes_per_second=box.host_optimizer_bytes_per_second,
        host_line_bytes_per_second=box.host_line_bytes_per_second,
    )


@cache
def _device(stem: str) -> tuple[Device, hardware.Box]:
    """A shipped device and its node; cached, because thousands of rows share a dozen devices."""
    return hardware.load_device(stem)


def device_name(row: Row) -> str:
    """Name of the row's device, whether or not the row can be priced."""
    try:
        return cluster_of(row).device.name
    except Skipped:
        return row.gpu or "not stated"


def _intra(row: Row, box_link: Link) -> Link:
    """The link inside a node: that of the profile, unless the row states a measured rate or another fabric."""
    text = row.interconnect_intra
    fabric = (
        "nvlink" if re.search(r"(?<!no )nvlink", text, re.IGNORECASE) else "pcie" if re.search("pcie", text, re.IGNORECASE) else ""
    )
    if "measured" in text and (rate_text := stated_rate(text)):
        return _with_rate(box_link, NETWORK_EFFICIENCY * rate_text.bytes_per_second, box_link.name, fabric or box_link.fabric)
    if not fabric or box_link.fabric.startswith(fabric):
        return _slowed(box_link, PCIE_X4_SHARE) if "slow lanes" in text else box_link
    rate = 40e9 if fabric == "nvlink" else 10e9
    return _with_rate(box_link, rate, text, fabric)


def _board_link(link: Link) -> Link:
    """The link on a board without a switch: a third of a device's links join each pair of its four devices."""
    if not link.fabric.startswith("nvlink"):
        return link
    pair_rate = link.bytes_per_second / (BOARD_GPUS - 1)
    return replace(link, in_switch=False, reduce_bytes_per_second=None, meshed_devices=BOARD_GPUS, pair_bytes_per_second=pair_rate)


def _with_rate(link: Link, rate: float, name: str, fabric: str) -> Link:
    """Another link of which only the rate is known."""
    unknown_line = replace(link, line_bytes_per_second=None, in_switch=False, reduce_bytes_per_second=None, meshed_devices=0)
    return replace(unknown_line, name=name, fabric=fabric, bytes_per_second=rate, pair_bytes_per_second=rate)


def _slowed(link: Link, share: float) -> Link:
    return replace(link, bytes_per_second=share * link.bytes_per_second, pair_bytes_per_second=share * link.pair_bytes_per_second)


def _inter(row: Row, box_link: Link, per_node: int) -> Link:
    """The link between nodes, as seen by one GPU. A stated rate is that of the host, unless the row says that it is per GPU or
    it equals the rate of one usual port. A measured one is that of collectives.
    """
    stated = stated_rate(row.interconnect_inter)
    if stated is None:
        return box_link
    port = box_link.line_bytes_per_second
    is_per_gpu = stated.per == "gpu" or (not stated.per and stated.bytes_per_second == port)
    gpus_per_host = row.gpus_per_node if per_node > MAX_GPUS_OF_A_HOST and row.gpus_per_node else per_node
    line_rate = stated.bytes_per_second / (1 if is_per_gpu else gpus_per_host)
    if line_rate == port:
        return box_link
    link = replace(
        _with_rate(box_link, NETWORK_EFFICIENCY * line_rate, row.interconnect_inter, box_link.fabric),
        line_bytes_per_second=line_rate,
    )
    measured = stated_rate(row.interconnect_inter.partition("measured")[2])
    return replace(link, bytes_per_second=measured.bytes_per_second / gpus_per_host) if measured else link
