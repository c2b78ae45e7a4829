"""Cluster: nodes of equal devices and the links between them, with every figure that a price needs."""

from dataclasses import dataclass, field
from itertools import pairwise

from strategist.errors import InputError

FABRICS = ("nvlink", "pcie", "pcie_via_host", "infiniband", "ethernet", "memory", "other")
"""What a link is made of; ``pcie_via_host`` has no peer access, ``memory`` is that of ranks on one host."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """An efficiency by size: points ``(size, share of the peak)``, sizes rising; interpolated in log size, flat outside.

    ``origin`` says where it comes from: ``measured: ...``, ``fitted: ...`` or ``assumed: ...``.
    """

    points: tuple[tuple[float, float], ...]
    origin: str

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.points]
        if not sizes or sizes[0] <= 0 or any(low >= high for low, high in pairwise(sizes)):
            raise InputError(f"curve with sizes {sizes}", "needs sizes above 0 that rise", "correct its points")
        if any(share <= 0 for _, share in self.points):
            raise InputError(f"curve with points {self.points}", "needs shares above 0", "correct its points")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, or one CPU rank. Peaks are dense and without sparsity, in FLOP/s; bandwidths in bytes/s.

    ``usable_memory_bytes`` is what a program can allocate after the driver's context and the communication library.
    ``matmul`` gives efficiency by the FLOPs of one matmul; ``allocator_slack`` is what the caching allocator reserves above what
    is allocated, as a share of the memory that comes and goes within a step; ``overlaps`` says whether communication runs beside
    computation on streams of its own; ``power_watts`` is the most that its board may draw; ``price_per_hour`` is in US dollars.
    Both are None where nobody said.
    """

    name: str
    kind: str
    memory_bytes: int
    usable_memory_bytes: int
    peak_flops: dict[str, float]
    memory_bytes_per_second: float
    matmul: Curve
    attention_efficiency: float
    memory_efficiency: float
    launch_seconds: float
    allocator_slack: float = 0.0
    overlaps: bool = True
    power_watts: float | None = None
    price_per_hour: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if "fp32" not in self.peak_flops:
            raise InputError(f"device {self.name}: peak_flops for {', '.join(self.peak_flops)}", "needs fp32", "add it")
        if not 0 < self.usable_memory_bytes <= self.memory_bytes:
            law = f"must lie between 1 and memory_bytes {self.memory_bytes}"
            raise InputError(f"device {self.name}: usable_memory_bytes {self.usable_memory_bytes}", law, "correct it")

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s of ``dtype``; a dtype that the device lacks runs as fp32."""
        return self.peak_flops.get(dtype, self.peak_flops["fp32"])


@dataclass(frozen=True, kw_only=True)
class Link:
    """A fabric as one rank sees it: achievable bus bandwidth of a collective (as nccl-tests defines it) and latency per hop.

    ``pair_bytes_per_second`` is what one point-to-point transfer reaches; ``fabric`` is one of FABRICS.
    """

    name: str
    bytes_per_second: float
    pair_bytes_per_second: float
    latency_seconds: float
    fabric: str = "other"
    source: str = ""

    def __post_init__(self) -> None:
        if self.fabric not in FABRICS:
            raise InputError(f"link {self.name}: fabric {self.fabric}", "is not known", f"choose one of {', '.join(FABRICS)}")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """``nodes`` nodes of ``gpus_per_node`` equal devices. ``host_memory_bytes`` is per node; None where nobody said.

    ``host_bytes_per_second`` is device to host per device when all devices of a node copy at once;
    ``host_optimizer_bytes_per_second`` is the rate at which a node's CPUs update offloaded optimizer state, counted in the bytes
    that the update holds in host memory: for fp32 AdamW 16 per parameter (parameter, gradient, two moments).
    """

    name: str
    nodes: int
    gpus_per_node: int
    device: Device
    intra: Link
    inter: Link
    host_bytes_per_second: float
    host_optimizer_bytes_per_second: float
    host_memory_bytes: int | None = None
    assumed: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise InputError(f"cluster {self.nodes}x{self.gpus_per_node}", "has at least one device", "write e.g. 8x24GB")

    @property
    def devices(self) -> int:
        return self.nodes * self.gpus_per_node
