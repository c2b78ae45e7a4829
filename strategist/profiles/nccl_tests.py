"""Links from logs of nccl-tests (github.com/NVIDIA/nccl-tests), written as a cluster file."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any

from strategist.contract.cluster import UNDEGRADED_NODES, Link
from strategist.contract.machine import CollectiveSample
from strategist.errors import FileError, InputError
from strategist.files import outputs, yaml_file
from strategist.frozen import frozen
from strategist.profiles import hardware
from strategist.profiles.measured_cluster import check_cluster_path, fit_link

HEADER = "# Links as nccl-tests measured them; all else is that of the device's usual node.\n"
ADVICE = "give the whole output of e.g. all_reduce_perf -b 8 -e 8G -f 2, its head included"
MAX_LOSS = 0.2
"""Largest share of its bandwidth that a network loses when its nodes double; a larger loss in a log has other causes."""

_RANK = re.compile(r"#\s+Rank\s+\d+\s.*?\sPid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.+?)\s*$", re.MULTILINE)
_NAME = re.compile(r"(?:starting:\s*|\b)(\w+)_perf\b")
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+(?:([a-z]+)\s+)?-?\d+\s+([\d.e+]+)\s+([\d.]+)\s+([\d.]+)\s", re.MULTILINE)
_COLLECTIVES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "sendrecv": "p2p",
}  # fmt: skip
"""Collectives that prices use, by their names in nccl-tests."""


@frozen
class NcclRun:
    """One log: a collective of ``nodes`` x ``gpus_per_node`` ranks at several sizes. ``device`` is the name that nvidia-smi has."""

    path: Path
    device: str
    nodes: int
    gpus_per_node: int
    samples: tuple[CollectiveSample, ...]

    @property
    def collective(self) -> str:
        return self.samples[0].collective


def read(path: Path) -> NcclRun:
    """The run in a log.

    Raises:
        FileError: it cannot be read, or is not a log of a collective that prices use.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}; name the output of a run of nccl-tests") from None
    ranks = _RANK.findall(text)
    if not ranks:
        raise FileError(path, f"has no lines '# Rank 0 ... on HOST device 0 ...': {ADVICE}")
    hosts, devices = Counter(host for host, _ in ranks), {device for _, device in ranks}
    if len(set(hosts.values())) > 1 or len(devices) > 1:
        raise FileError(path, "was run on nodes that are not alike; measure equal nodes, with as many ranks on each")
    rows = [
        (int(size), operation, float(microseconds), float(rate), float(bus_rate))
        for size, operation, microseconds, rate, bus_rate in _ROW.findall(text)
    ]
    rows = [row for row in rows if row[0] and row[2]]
    if not rows or len(ranks) < 2:
        raise FileError(path, f"has no sizes and times of two ranks or more; {ADVICE}")
    collective = _collective(text, rows[-1], len(ranks))
    if collective is None:
        raise FileError(path, f"is of no collective that prices take, which are {', '.join(_COLLECTIVES)}; run one of these")
    samples = (
        CollectiveSample(collective=collective, ranks=len(ranks), message_bytes=row[0], seconds=row[2] * 1e-6) for row in rows
    )
    return NcclRun(
        path=path, device=devices.pop(), nodes=len(hosts), gpus_per_node=len(ranks) // len(hosts), samples=tuple(samples)
    )


def _collective(text: str, largest: tuple[int, str, float, float, float], ranks: int) -> str | None:
    """The collective by its name, else by the ratio of bus bandwidth to rate at the largest size (nccl-tests, PERFORMANCE.md)."""
    if names := _NAME.findall(text):
        return next((_COLLECTIVES[name] for name in names if name in _COLLECTIVES), None)
    _, operation, _, rate, bus_rate = largest
    ratio, one_way = bus_rate / rate if rate else 0.0, (ranks - 1) / ranks
    if abs(ratio - 2 * one_way) < 0.02:
        return "all_reduce" if ranks > 2 or operation == "sum" else None
    if abs(ratio - one_way) < 0.02:
        return "reduce_scatter" if operation == "sum" else "all_gather"
    return None


def cluster_data(runs: Sequence[NcclRun]) -> dict[str, Any]:
    """Fields of a cluster file.

    Raises:
        InputError: the logs are of different devices or nodes, of a device without a profile, or fit no link.
    """
    first = runs[0]
    for other in runs[1:]:
        if (other.device, other.gpus_per_node) != (first.device, first.gpus_per_node) and other.nodes > 1:
            other_devices = f"{other.gpus_per_node} x {other.device} a node"
            raise InputError(
                f"--nccl-tests {other.path}", f"has {other_devices}, {first.path} has {first.gpus_per_node} x {first.device}",
                "give logs of the same nodes",
            )  # fmt: skip
    stem = hardware.find_measured_device(first.device, None)
    if stem is None:
        raise hardware.unknown_device(f"--nccl-tests {first.path}", first.device)
    device, box = hardware.load_device(stem)
    single_node, multi_node = [run for run in runs if run.nodes == 1], [run for run in runs if run.nodes > 1]
    intra = _intra(single_node, box.intra) if single_node else box.intra
    links = {"intra": _fields(intra)} if single_node else {}
    if multi_node:
        links["inter"] = _fields(_inter(multi_node, box.inter, intra))
    nodes = max(run.nodes for run in runs)
    logs = ", ".join(run.path.name for run in runs)
    name = f"{nodes}x{first.gpus_per_node}x{device.name}"
    return {
        "name": name, "device": device.name, "nodes": nodes, "gpus_per_node": first.gpus_per_node, **links,
        "source": f"measured: nccl-tests, {logs}",
    }  # fmt: skip


def _intra(runs: Sequence[NcclRun], box_link: Link) -> Link:
    """The link inside a node. With reducing switches, an all-reduce is faster than any ring and gives no rate of all-gathers."""
    gathers, reduces, pairs = _samples(runs, "all_gather", "reduce_scatter"), _samples(runs, "all_reduce"), _samples(runs, "p2p")
    ring_samples = gathers or reduces
    if not ring_samples:
        raise InputError(f"--nccl-tests {runs[0].path}", "shows single pairs of ranks alone", "add a log of all_gather_perf")
    latency, rate = fit_link(ring_samples)
    if not gathers and box_link.in_switch:
        rate = min(rate, box_link.bytes_per_second)
    reduce = fit_link(reduces)[1] if reduces and box_link.in_switch else None
    return replace(
        _measured(box_link, rate, latency, runs), pair_bytes_per_second=_pair(pairs, rate), reduce_bytes_per_second=reduce
    )


def _inter(runs: Sequence[NcclRun], box_link: Link, intra: Link) -> Link:
    """The link between nodes, as the share of one GPU.

    A node's GPUs share the bandwidth of a ring over the nodes; of the ring's hops, one per node leaves the node.
    """
    by_nodes = {nodes: [run for run in runs if run.nodes == nodes] for nodes in sorted({run.nodes for run in runs})}
    rates, latencies = {}, {}
    for nodes, node_runs in by_nodes.items():
        ring_samples = _samples(node_runs, "all_gather", "reduce_scatter") or _samples(node_runs, "all_reduce")
        if ring_samples:
            latencies[nodes], rates[nodes] = fit_link(ring_samples)
    if not rates:
        raise InputError(f"--nccl-tests {runs[0].path}", "shows single pairs of ranks alone", "add a log of all_gather_perf")
    per_node, min_nodes, max_nodes = runs[0].gpus_per_node, min(rates), max(rates)
    doublings = log2(max(max_nodes / UNDEGRADED_NODES, 1.0)) - log2(max(min_nodes / UNDEGRADED_NODES, 1.0))
    loss = box_link.lost_per_doubling
    if doublings >= 1:
        loss = min(max(1 - (rates[max_nodes] / rates[min_nodes]) ** (1 / doublings), 0.0), MAX_LOSS)
    rate = rates[min_nodes] / per_node / (1 - loss) ** log2(max(min_nodes / UNDEGRADED_NODES, 1.0))
    ranks = min_nodes * per_node
    hop = latencies[min_nodes]
    latency = (hop * (ranks - 1) - (ranks - min_nodes) * intra.latency_seconds) / (min_nodes - 1)
    link = _measured(box_link, rate, latency if latency > 0 else hop, runs)
    return replace(link, pair_bytes_per_second=_pair(_samples(runs, "p2p"), rate), lost_per_doubling=loss)


def _samples(runs: Sequence[NcclRun], *collectives: str) -> list[CollectiveSample]:
    return [sample for run in runs if run.collective in collectives for sample in run.samples]


def _pair(samples: Sequence[CollectiveSample], default: float) -> float:
    return max((sample.bus_bytes_per_second for sample in samples), default=default)


def _measured(box_link: Link, rate: float, latency: float, runs: Sequence[NcclRun]) -> Link:
    """The usual link with measured rate and latency. A rate above the usual line rate means another link, of unknown line rate."""
    line_rate = box_link.line_bytes_per_second
    valid_line_rate = line_rate if line_rate is not None and rate <= line_rate else None
    collectives = ", ".join(sorted({run.collective for run in runs}))
    return replace(
        box_link,
        bytes_per_second=rate,
        pair_bytes_per_second=rate,
        latency_seconds=latency,
        line_bytes_per_second=valid_line_rate,
        source=f"measured: nccl-tests, {collectives} of {', '.join(map(str, sorted({run.nodes for run in runs})))} nodes",
    )


def _fields(link: Link) -> dict[str, Any]:
    fields = {name: value for name, value in vars(link).items() if value is not None}
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in fields.items()}


def write(paths: Sequence[Path], target: Path, *, force: bool = False) -> dict[str, Any]:
    """Writes a cluster file from logs, and returns its fields.

    Raises:
        InputError, FileError: a log is invalid, or the path cannot be written.
    """
    if outputs.is_stream(target):
        raise InputError(f"-o {target}", "the links are read back from the file", "name one that ends in .yaml")
    check_cluster_path(target, HEADER, force=force)
    data = cluster_data([read(path) for path in paths])
    outputs.write(target, HEADER + yaml_file.dump(data))
    return data
