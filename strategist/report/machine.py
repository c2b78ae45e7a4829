"""Measurements of a machine: rates by type and size, and the bus bandwidth of every collective."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table

from strategist.contract.cluster import Cluster, Link
from strategist.contract.machine import BUS_FACTORS, LAYER_KERNELS, MachineRecord
from strategist.report.text_blocks import columns, grouped, heading, pairs, section
from strategist.units import show_bytes, show_seconds

PLUMBING = "gloo on one host: its bandwidths are those of memory and cores, and a reduce-scatter is an all-reduce inside"


@grouped
def machine_report(record: MachineRecord) -> Iterator[RenderableType]:
    """All measurements, in tables."""
    title = f"{record.ranks} x {record.device_name}, measured at once in {show_seconds(record.wall_seconds)}"
    yield section(heading(title), pairs(_device(record)))
    yield section(heading("Matmuls", "GFLOP/s by size and shape"), matmul_table(record))
    if record.collectives:
        detail = "bus bandwidth in GB/s, as nccl-tests defines it" + (f"; {PLUMBING}" if record.device_kind == "cpu" else "")
        yield section(heading("Collectives", detail), collective_table(record))


def _device(record: MachineRecord) -> Iterator[tuple[str, str]]:
    yield "memory", f"{show_bytes(record.memory_bytes)} a rank"
    streaming, allocating = record.streaming_bytes_per_second, record.elementwise_bytes_per_second
    yield (
        "memory traffic",
        f"{streaming / 1e9:.3g} GB/s into what exists, {allocating / 1e9:.3g} GB/s where the output is made anew",
    )
    for sample in record.attention:
        rate = sample.flops / sample.seconds / 1e9
        yield f"attention, {sample.dtype}", f"{rate:.3g} GFLOP/s over {sample.seq_len} tokens, forward and backward"
    yield "launch", f"{record.layer_seconds / LAYER_KERNELS * 1e6:.3g} us a kernel, of a decoder layer that hardly computes"
    yield "host link", f"{record.host_bytes_per_second / 1e9:.3g} GB/s a rank"
    yield "update in host memory", f"{record.host_optimizer_bytes_per_second / 1e9:.3g} GB/s, all ranks together"


def links_report(cluster: Cluster) -> Group:
    """Both links of a cluster, and the sources of their figures."""
    title = heading(f"{cluster.nodes} x {cluster.gpus_per_node} x {cluster.device.name}", "links as one device has them")
    return section(title, pairs([("inside a node", _link(cluster.intra)), ("between nodes", _link(cluster.inter))]))


def _link(link: Link) -> str:
    """Rates of a link and their sources."""
    reduce = link.reduce_bytes_per_second
    faster = f", {reduce / 1e9:.3g} GB/s in all-reduces" if reduce and reduce != link.bytes_per_second else ""
    lost = f", {link.lost_per_doubling:.1%} less for each doubling of nodes"
    rates = f"{link.bytes_per_second / 1e9:.3g} GB/s bus bandwidth{faster}, {link.latency_seconds * 1e6:.3g} us a hop"
    return f"{rates}{lost if link.fabric in ('infiniband', 'ethernet') else ''} ({link.source})"


def matmul_table(record: MachineRecord) -> Table:
    """A row per shape, a column per type."""
    types = tuple(dict.fromkeys(sample.dtype for sample in record.matmuls))
    table = columns("rows x inner x columns", *types, left=["rows x inner x columns"])
    shapes = dict.fromkeys((sample.rows, sample.inner, sample.columns) for sample in record.matmuls)
    rates = {(sample.rows, sample.inner, sample.columns, sample.dtype): sample.rate for sample in record.matmuls}
    for shape in shapes:
        found = [rates.get((*shape, dtype)) for dtype in types]
        table.add_row(" x ".join(map(str, shape)), *("-" if rate is None else f"{rate / 1e9:,.4g}" for rate in found))
    return table


def collective_table(record: MachineRecord) -> Table:
    """A row per collective and group size, a column per message size."""
    sizes = sorted({sample.message_bytes for sample in record.collectives})
    table = columns("collective", "ranks", *map(show_bytes, sizes), left=["collective"])
    rates = {(item.collective, item.ranks, item.message_bytes): item.bus_bytes_per_second for item in record.collectives}
    for ranks in sorted({item.ranks for item in record.collectives}):
        for name in (name for name in BUS_FACTORS if any(key[:2] == (name, ranks) for key in rates)):
            found = [rates.get((name, ranks, size)) for size in sizes]
            table.add_row(name, str(ranks), *("-" if rate is None else f"{rate / 1e9:.3g}" for rate in found))
    return table
