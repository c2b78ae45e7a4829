"""Calibration: factors that fit the parts of a price to measurements on a device with a software stack."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from strategist.contract import codec
from strategist.contract.cluster import Cluster, Device, Link
from strategist.contract.codec import added
from strategist.cost.candidate_arrays import Number
from strategist.errors import InputError
from strategist.frozen import frozen

LARGE_MATMUL_FLOPS = 1e12
"""Size in FLOPs from which matmuls are unaffected by ``small``."""

SLOWEST_LAUNCH_SECONDS = 1e-5
"""Upper limit of the host time of an eager kernel, unless the device itself was measured slower: 2 to 10 us on GPU hosts."""


@frozen
class Factors:
    """The factors of a calibration that do not act on links: single figures, or columns of several calibrations, (calibrations,
    1).
    """

    compute: Number = 1.0
    attention: Number = 1.0
    memory_bound: Number = 1.0
    small: Number = 0.0
    launch: Number = 1.0
    kernels: Number = 1.0
    routing: Number = 1.0
    tensor: Number = 1.0
    expert: Number = 1.0
    host: Number = 1.0
    wait: Number = 0.0
    overhead_seconds: Number = 0.0
    update_seconds: Number = 0.0
    micro_batch_seconds: Number = 0.0


@frozen
class Calibration:
    """Factors on the parts of a price; 1 means as the profiles say.

    compute: time of all computation on devices; ``attention`` and ``memory_bound`` act on flash attention and elementwise work in
        addition.
    small: exponent with which the efficiency of matmuls falls with their size beyond the device's curve.
    launch: host time of a kernel launch.
    kernels, routing: number of launches of a layer, and of those that route tokens to experts, of other modules and another code.
    communication: time of every collective; ``inter`` acts on those between nodes in addition, ``latency`` on the constant part.
    tensor, expert: exposed share of tensor- and expert-parallel collectives; below 1 if they overlap with matmuls.
    host: time of copies between hosts and devices, and of updates on hosts.
    wait: share of a step that ranks wait for the slowest, per doubling of the nodes.
    overhead_seconds, micro_batch_seconds: added to each step, and to each micro-batch.
    update_seconds: added to each step for each layer of a rank: what the host takes for its loops over parameters, of the gradient
        norm and of the optimizer.
    memory: transient memory.
    step_range: 90 % interval of measured over predicted step time. Default: the interval of published rows priced with profiles
        alone.
    memory_spread: standard deviation of the logarithm of measured over predicted memory.
    trials: number of measurements that the factors were fitted to.
    """

    RETIRED: ClassVar[tuple[str, ...]] = ("congestion", "stall_seconds", "stage_wait_seconds")

    compute: float = 1.0
    attention: float = 1.0
    memory_bound: float = 1.0
    small: float = 0.0
    launch: float = 1.0
    kernels: float = added(1.0)
    routing: float = added(1.0)
    communication: float = 1.0
    inter: float = 1.0
    latency: float = 1.0
    tensor: float = 1.0
    expert: float = 1.0
    host: float = 1.0
    wait: float = 0.0
    overhead_seconds: float = 0.0
    update_seconds: float = added(0.0)
    micro_batch_seconds: float = 0.0
    memory: float = 1.0
    step_range: tuple[float, float] = (0.6, 1.8)
    memory_spread: float = 0.15
    trials: int = 0

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(codec.dumps(self).encode()).hexdigest()[:16]

    def __post_init__(self) -> None:
        for name in ("tensor", "expert"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                law = "is the share of collectives that nothing hides, within 0 and 1"
                raise InputError(f"calibration: {name} {share:g}", law, "calibrate again, or correct it")

    @cached_property
    def factors(self) -> Factors:
        """The factors that do not act on links."""
        return Factors(**{item.name: getattr(self, item.name) for item in fields(Factors)})

    @property
    def link_factors(self) -> tuple[float, float, float]:
        """The factors of links."""
        return self.communication, self.inter, self.latency

    def calibrated_cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with its links slowed by the factors; none exceeds its line rate."""
        return replace(cluster, intra=self._slowed_link(cluster.intra, 1.0), inter=self._slowed_link(cluster.inter, self.inter))

    def within(self, cluster: Cluster) -> "Calibration":
        """Equivalent factors for this cluster, none of which exceeds what the hardware allows."""
        calibrated, device = self.calibrated_cluster(replace(cluster, nodes=1)), cluster.device
        compute = max(self.compute, *(share for _, share in device.matmul.points))
        communication = cluster.intra.bytes_per_second / calibrated.intra.bytes_per_second
        host = cluster.host_bytes_per_second / (cluster.host_line_bytes_per_second or math.inf)
        return replace(
            self,
            compute=compute,
            attention=max(self.compute * self.attention, device.attention_efficiency) / compute,
            memory_bound=max(self.compute * self.memory_bound, device.memory_efficiency) / compute,
            launch=min(self.launch, slowest_launch_seconds(device) / device.launch_seconds),
            communication=communication,
            inter=cluster.inter.bytes_per_second / calibrated.inter.bytes_per_second / communication,
            latency=self.communication * self.latency / communication,
            host=max(self.host, min(host, 1.0)),
        )

    def _slowed_link(self, link: Link, factor: float) -> Link:
        slowdown, line_rate = self.communication * factor, link.line_bytes_per_second or math.inf
        reduce_rate = link.reduce_bytes_per_second
        return replace(
            link,
            reduce_bytes_per_second=reduce_rate and min(reduce_rate / slowdown, max(2 * line_rate, reduce_rate)),
            bytes_per_second=min(link.bytes_per_second / slowdown, max(line_rate, link.bytes_per_second)),
            pair_bytes_per_second=min(link.pair_bytes_per_second / slowdown, max(line_rate, link.pair_bytes_per_second)),
            latency_seconds=link.latency_seconds * self.communication * self.latency,
        )


def stacked(calibrations: Sequence[Calibration]) -> Factors:
    """Factors of several calibrations as columns (calibrations, 1), so that one call prices all."""
    return Factors(
        **{
            item.name: np.array([getattr(calibration, item.name) for calibration in calibrations])[:, None]
            for item in fields(Factors)
        }
    )


def slowest_launch_seconds(device: Device) -> float:
    """Upper limit of an eager launch; infinite on CPUs, where device and host are one."""
    return max(SLOWEST_LAUNCH_SECONDS, device.launch_seconds) if device.kind == "cuda" else math.inf


NEUTRAL = Calibration()


def load_calibration(path: str | Path | None) -> Calibration | None:
    """The calibration in a file; without a file None, which stands for the shipped calibration.

    Raises:
        FileError: the file is not a calibration.
    """
    return None if path is None else codec.load(Calibration, path)
