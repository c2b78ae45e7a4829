"""A machine's measurements as a cluster file: ``strategist profile`` writes it, ``--gpus`` reads it."""

import re
from collections.abc import Callable, Sequence
from math import exp, log, log2
from pathlib import Path
from statistics import fmean
from typing import Any

from strategist.contract import codec
from strategist.contract.cluster import Device
from strategist.contract.machine import LAYER_KERNELS, CollectiveSample, MachineRecord
from strategist.errors import InputError
from strategist.files import outputs, yaml_file
from strategist.profiles import hardware

HEADER = "# This machine, measured by strategist profile; the samples are in the JSON file next to this one.\n"
SHARDED = ("all_gather", "reduce_scatter", "all_reduce")
"""Collectives of data and tensor parallelism; a link's bandwidth and latency are fitted to all three."""

DIGITS = 4


def write(record: MachineRecord, path: Path, *, force: bool = False) -> None:
    """Writes the cluster file and, unless it is a stream, all samples as JSON beside it.

    Raises:
        InputError, FileError: the path is invalid for a cluster file, or cannot be written.
    """
    check_cluster_path(path, force=force)
    outputs.write(path, cluster_text(record), marker=HEADER, force=force)
    if not outputs.is_stream(path):
        codec.save(record, path.with_suffix(".json"), force=force)


def check_cluster_path(path: Path, header: str = HEADER, *, force: bool = False) -> None:
    """Checks that a cluster file can be written to ``path``.

    Raises:
        InputError: the name is not that of a cluster file.
        FileError: a file with another ``header`` exists there.
    """
    if path.suffix.lower() not in (".yaml", ".yml") and not outputs.is_stream(path):
        raise InputError(f"-o {path}", "a cluster file ends in .yaml", "name it so, for --gpus tells it by that")
    outputs.check(path, marker=header, force=force)


def cluster_text(record: MachineRecord) -> str:
    """The cluster file, as YAML."""
    return HEADER + yaml_file.dump(cluster_data(record))


def cluster_data(record: MachineRecord) -> dict[str, Any]:
    """Fields of the cluster file. One node cannot show its network, which is that of the typical box, or assumed without one."""
    stem = hardware.find_measured_device(record.device_name, None) if record.device_kind == "cuda" else "cpu"
    shipped = hardware.load_device(stem)[0] if stem else None
    intra, origin = _link(record), _origin(record)
    return {
        "name": "local",
        "device": _device(record, shipped, origin),
        "nodes": 1,
        "gpus_per_node": record.ranks,
        **({} if intra is None else {"intra": intra}),
        **({} if shipped is not None else {"inter": _unknown_network(intra)}),
        "host_bytes_per_second": _round(record.host_bytes_per_second),
        "host_optimizer_bytes_per_second": _round(record.host_optimizer_bytes_per_second),
        "source": origin,
    }


def _origin(record: MachineRecord) -> str:
    versions = ", ".join(f"{name} {record.versions[name]}" for name in ("torch", "cuda", "nccl") if name in record.versions)
    return f"measured: by {record.ranks} ranks at once on {record.device_name}, {versions}"


def _device(record: MachineRecord, shipped: Device | None, origin: str) -> dict[str, Any]:
    dtypes = dict.fromkeys(sample.dtype for sample in record.matmuls)
    peaks = {dtype: max(sample.rate for sample in record.matmuls if sample.dtype == dtype) for dtype in dtypes}
    attention_dtypes = {sample.dtype for sample in record.attention}
    attention = {dtype: _attention_curve(record, dtype, peak, origin) for dtype, peak in peaks.items() if dtype in attention_dtypes}
    main = "bf16" if record.device_kind == "cuda" else "fp32"
    if (
        shipped is not None and "fp8" in shipped.peak_flops and "fp8" not in peaks
    ):  # not measured: scaled by the ratio of the data sheet's peaks
        peaks["fp8"] = peaks[main] * shipped.peak_flops["fp8"] / shipped.peak(main)
    assumed_fields: dict[str, Any] = {"overlaps": record.device_kind == "cuda", "allocator_slack": 0.15}
    overhead = shipped.memory_bytes - shipped.usable_memory_bytes if shipped is not None and shipped.kind == "cpu" else 0
    return {
        "name": record.device_name if shipped is None else shipped.name,
        "kind": record.device_kind,
        "memory_bytes": record.memory_bytes,
        "usable_memory_bytes": max(record.usable_memory_bytes - overhead, record.usable_memory_bytes // 2),
        "peak_flops": {dtype: _round(peak) for dtype, peak in peaks.items()},
        "memory_bytes_per_second": _round(record.streaming_bytes_per_second),
        "matmul": _matmul_curve(record, main, peaks[main], origin),
        "attention_efficiency": attention[main]["points"][-1][1],
        "memory_efficiency": _round(min(1.0, record.elementwise_bytes_per_second / record.streaming_bytes_per_second)),
        "launch_seconds": _round(record.layer_seconds / LAYER_KERNELS),
        "by_type": {
            dtype: {"matmul": _matmul_curve(record, dtype, peaks[dtype], origin), "attention": attention_curve}
            for dtype, attention_curve in attention.items()
        },
        "source": origin,
        **({} if shipped is not None else assumed_fields),
    }


def _matmul_curve(record: MachineRecord, dtype: str, peak: float, origin: str) -> dict[str, Any]:
    """Share of the best rate by FLOPs; the geometric mean over shapes with equal FLOPs."""
    sizes: dict[float, list[float]] = {}
    for sample in record.matmuls:
        if sample.dtype == dtype:
            sizes.setdefault(sample.flops, []).append(sample.rate / peak)
    points = [[_round(size), _round(exp(fmean(map(log, shares))))] for size, shares in sorted(sizes.items())]
    return {"points": points, "origin": origin}


def _attention_curve(record: MachineRecord, dtype: str, peak: float, origin: str) -> dict[str, Any]:
    """Attention's share of the best matmul rate, by sequence length."""
    samples = sorted((sample for sample in record.attention if sample.dtype == dtype), key=lambda sample: sample.seq_len)
    points = [[float(sample.seq_len), _round(min(1.0, sample.flops / sample.seconds / peak))] for sample in samples]
    return {"points": points, "origin": origin}


def _link(record: MachineRecord) -> dict[str, Any] | None:
    """The link between the ranks; None if there is a single rank."""
    samples = [sample for sample in record.collectives if sample.ranks == record.ranks and sample.collective in SHARDED]
    if not samples:
        return None
    latency, bandwidth = fit_link(samples)
    pairs = [sample.bus_bytes_per_second for sample in record.collectives if sample.collective == "p2p"]
    return {
        "name": "gloo over loopback" if record.device_kind == "cpu" else "as measured",
        "fabric": "memory" if record.device_kind == "cpu" else fabric(record.topology),
        "bytes_per_second": _round(bandwidth),
        "pair_bytes_per_second": _round(max(pairs, default=bandwidth)),
        "latency_seconds": _round(latency),
        "source": f"measured: {', '.join(SHARDED)} of {record.ranks} ranks, by size; the rate and latency that explain them best",
    }


def fit_link(samples: Sequence[CollectiveSample]) -> tuple[float, float]:
    """Latency per hop (s) and bandwidth (bytes/s) of a link, fitted to samples.

    Least squares of the relative errors of ``hops x latency + volume / rate``, as in prices (``cost.process_groups``). Neither may
    be negative: if noise makes one negative, it becomes 0 and the other is fitted alone.
    """
    rows = [(hops / sample.seconds, volume / sample.seconds) for sample in samples for hops, volume in [_ring(sample)]]
    hh, hv, vv = (sum(product(*row) for row in rows) for product in _PRODUCTS)
    h, v = sum(row[0] for row in rows), sum(row[1] for row in rows)
    determinant = hh * vv - hv * hv
    latency, inverse = ((h * vv - v * hv) / determinant, (v * hh - h * hv) / determinant) if determinant else (0.0, v / vv)
    if latency <= 0:
        latency, inverse = 1e-9, v / vv
    if inverse <= 0:
        largest = max(samples, key=lambda sample: sample.message_bytes)
        inverse = largest.seconds / _ring(largest)[1]
    return latency, 1 / inverse


_PRODUCTS: tuple[Callable[[float, float], float], ...] = (lambda h, v: h * h, lambda h, v: h * v, lambda h, v: v * v)


def _ring(sample: CollectiveSample) -> tuple[float, float]:
    """Hops of a collective, and the bytes that pass each rank."""
    ranks, passes = sample.ranks, 2 if sample.collective == "all_reduce" else 1
    hops = 2 * min(ranks - 1, 2 * log2(ranks)) if passes == 2 else ranks - 1
    return hops, passes * (ranks - 1) / ranks * sample.message_bytes


def fabric(topology: str) -> str:
    """The fabric that connects the GPUs, from the matrix of ``nvidia-smi topo -m``: the slowest connection between any two."""
    connections = {connection for row in matrix(topology) for connection in row if connection != "X"}
    if not connections:
        return "other"
    if all(connection.startswith("NV") for connection in connections):
        return "nvlink"
    return "pcie" if connections <= {"PIX", "PXB"} else "pcie_via_host"


def matrix(topology: str) -> tuple[tuple[str, ...], ...]:
    """Matrix of the connections between GPUs, from the output of ``nvidia-smi topo -m``; X on the diagonal."""
    rows = [line.split() for line in re.sub(r"\x1b\[[0-9;]*m", "", topology).splitlines() if re.match(r"\s*\S*GPU[0-9]+\s", line)]
    names = [row for row in rows if "X" not in row]
    count = sum(name.startswith("GPU") and name[3:].isdigit() for name in names[0]) if names else len(rows)
    return tuple(tuple(row[1 : count + 1]) for row in rows if "X" in row)


def _unknown_network(intra: dict[str, Any] | None) -> dict[str, Any]:
    rates = {"bytes_per_second": 1e9, "pair_bytes_per_second": 1e9, "latency_seconds": 5e-5}
    return {**rates, **(intra or {}), "name": "none", "source": "assumed: there is one node, so nothing passes here"}


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
