"""Rates of a cluster's resources: peaks by data sheets and line rates, and the same with measured bus bandwidths."""

from strategist.contract.cluster import Cluster, Link
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.frozen import frozen


@frozen
class Rates:
    """Highest rate of each resource: FLOP/s and bytes/s per device; links in bytes/s per direction and device.

    ``attention_flops`` is separate because attention never runs in float8 here. ``in_switch_intra`` and ``in_switch_inter``:
    switches reduce and multicast.
    """

    matmul_flops: float
    attention_flops: float
    memory_bytes: float
    intra_bytes: float
    inter_bytes: float
    host_bytes: float
    in_switch_intra: bool
    in_switch_inter: bool


def line_rates(cluster: Cluster, workload: Workload, stack: Stack, *, float8: bool) -> Rates:
    """Peaks at the highest clock, with memory and links at line rate.

    A link of unknown line rate gets its measured rate, so that the bound assumes no better one.
    """
    return _rates(cluster, workload, stack, float8=float8, links=(_line_rate(cluster.intra), _line_rate(cluster.inter)))


def measured_rates(cluster: Cluster, workload: Workload, stack: Stack, *, float8: bool) -> Rates:
    """Rates of the practical bound: as :func:`line_rates`, but links at their measured bus bandwidths."""
    links = cluster.intra.bytes_per_second, cluster.inter.bytes_per_second
    return _rates(cluster, workload, stack, float8=float8, links=links)


def _rates(cluster: Cluster, workload: Workload, stack: Stack, *, float8: bool, links: tuple[float, float]) -> Rates:
    device, dtype = cluster.device, workload.compute_dtype
    peak = cluster.peak(dtype) / cluster.devices * device.clock_headroom
    fp16_speedup = (
        device.peak_flops["fp16_sums"] / device.peak("fp16") if stack.fp16_sums and "fp16_sums" in device.peak_flops else 1.0
    )
    float8_speedup = device.peak_flops.get("fp8", device.peak("bf16")) / device.peak(dtype) if float8 else 1.0
    return Rates(
        matmul_flops=peak * max(fp16_speedup if dtype == "fp16" else 1.0, float8_speedup),
        attention_flops=peak,
        memory_bytes=max(device.memory_bytes_per_second, *(group.device.memory_bytes_per_second for group in cluster.groups))
        if cluster.groups
        else device.memory_bytes_per_second,
        intra_bytes=links[0],
        inter_bytes=links[1],
        host_bytes=max(cluster.host_line_bytes_per_second or 0.0, cluster.host_bytes_per_second),
        in_switch_intra=cluster.intra.in_switch,
        in_switch_inter=cluster.inter.in_switch,
    )


def _line_rate(link: Link) -> float:
    return link.line_bytes_per_second or max(link.bytes_per_second, link.pair_bytes_per_second)
