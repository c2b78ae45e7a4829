"""Calibration: factors that bring the model's parts to what was measured on a device with a software stack."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from strategist.contract import codec
from strategist.contract.cluster import Cluster, Device, Link
from strategist.contract.codec import added
from strategist.cost.candidate_arrays import Number
from strategist.errors import InputError

LARGE_MATMUL_FLOPS = 1e12
"""Matmuls from this size on are large: ``small`` doesn't slow them."""

SLOWEST_LAUNCH_SECONDS = 1e-5
"""Host time of an eager kernel at most, unless the device itself was measured slower: 2 to 10 us on GPU hosts."""


@dataclass(frozen=True, kw_only=True)
class Factors:
    """What a calibration changes beside links: single figures, or columns of several calibrations, (calibrations, 1)."""

    compute: Number = 1.0
    attention: Number = 1.0
    memory_bound: Number = 1.0
    small: Number = 0.0
    launch: Number = 1.0
    kernels: Number = 1.0
    tensor: Number = 1.0
    expert: Number = 1.0
    host: Number = 1.0
    wait: Number = 0.0
    overhead_seconds: Number = 0.0
    micro_batch_seconds: Number = 0.0


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Factors on predicted parts; 1 says what the profiles say. ``trials`` is how many measurements they come from.

    ``compute`` stretches everything that devices compute, ``attention`` and ``memory_bound`` flash attention and elementwise work
    beside that; ``small`` is how fast the efficiency of matmuls falls with their size beyond what the curve says, as an exponent.
    ``launch`` stretches the host's time to launch a kernel, ``kernels`` how many a layer launches. ``communication`` stretches
    every collective, ``inter`` those between nodes beside that, ``latency`` the part that does not grow with size. ``tensor`` and
    ``expert`` are what shows of those of tensor and of expert parallelism: below 1 where they run beside matmuls. ``host``
    stretches copies between hosts and devices, and what hosts update. ``wait`` is the share of a step that ranks wait for the
    slowest of them, for each doubling of the nodes. ``overhead_seconds`` is added to each step, ``micro_batch_seconds`` to each
    micro-batch. ``memory`` stretches what comes and goes within a step.
    Nine measured steps of ten lie within ``step_range`` times the prediction; where nothing was fitted, the range of what was
    published and of predictions from profiles alone. ``memory_spread`` is the standard deviation of the logarithm of measured over
    predicted memory.
    """

    RETIRED: ClassVar[tuple[str, ...]] = ("congestion", "stall_seconds", "stage_wait_seconds")

    compute: float = 1.0
    attention: float = 1.0
    memory_bound: float = 1.0
    small: float = 0.0
    launch: float = 1.0
    kernels: float = added(1.0)
    communication: float = 1.0
    inter: float = 1.0
    latency: float = 1.0
    tensor: float = 1.0
    expert: float = 1.0
    host: float = 1.0
    wait: float = 0.0
    overhead_seconds: float = 0.0
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
        """Those that change a step beside its links."""
        return Factors(**{item.name: getattr(self, item.name) for item in fields(Factors)})

    @property
    def link_factors(self) -> tuple[float, float, float]:
        """The factors of links."""
        return self.communication, self.inter, self.latency

    def calibrated_cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with its links as these factors see them, never faster than their line rates."""
        return replace(cluster, intra=self._link(cluster.intra, 1.0), inter=self._link(cluster.inter, self.inter))

    def within(self, cluster: Cluster) -> "Calibration":
        """The same speeds on this cluster by factors of which none goes beyond what the hardware allows."""
        linked, device = self.calibrated_cluster(replace(cluster, nodes=1)), cluster.device
        compute = max(self.compute, *(share for _, share in device.matmul.points))
        communication = cluster.intra.bytes_per_second / linked.intra.bytes_per_second
        host = cluster.host_bytes_per_second / (cluster.host_line_bytes_per_second or math.inf)
        return replace(
            self,
            compute=compute,
            attention=max(self.compute * self.attention, device.attention_efficiency) / compute,
            memory_bound=max(self.compute * self.memory_bound, device.memory_efficiency) / compute,
            launch=min(self.launch, slowest_launch_seconds(device) / device.launch_seconds),
            communication=communication,
            inter=cluster.inter.bytes_per_second / linked.inter.bytes_per_second / communication,
            latency=self.communication * self.latency / communication,
            host=max(self.host, min(host, 1.0)),
        )

    def _link(self, link: Link, further: float) -> Link:
        slower, line = self.communication * further, link.line_bytes_per_second or math.inf
        reduced = link.reduce_bytes_per_second
        return replace(
            link,
            reduce_bytes_per_second=reduced and min(reduced / slower, max(2 * line, reduced)),
            bytes_per_second=min(link.bytes_per_second / slower, max(line, link.bytes_per_second)),
            pair_bytes_per_second=min(link.pair_bytes_per_second / slower, max(line, link.pair_bytes_per_second)),
            latency_seconds=link.latency_seconds * self.communication * self.latency,
        )


def stacked(calibrations: Sequence[Calibration]) -> Factors:
    """The factors of several calibrations as columns (their number, 1), so that one pricing serves all."""
    return Factors(
        **{
            item.name: np.array([getattr(calibration, item.name) for calibration in calibrations])[:, None]
            for item in fields(Factors)
        }
    )


def slowest_launch_seconds(device: Device) -> float:
    """The most that an eager launch takes; without limit where the device is the host."""
    return max(SLOWEST_LAUNCH_SECONDS, device.launch_seconds) if device.kind == "cuda" else math.inf


NEUTRAL = Calibration()


def load_calibration(path: str | Path | None) -> Calibration | None:
    """What a study learned; without a file None, for what was published of the device.

    Raises:
        FileError: the file is no calibration.
    """
    return None if path is None else codec.load(Calibration, path)
