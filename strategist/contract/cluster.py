"""Cluster: nodes of equal devices and the links between them, with every figure that a price needs."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import log

from strategist.contract.codec import added, shared
from strategist.contract.name_rules import check_id, check_name
from strategist.errors import InputError, not_among

DEVICE_SECONDS_BETWEEN_FAILURES = 16_384 * 54 * 86_400 / 419
"""Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 H100 (arXiv 2407.21783, section 3.3.4)."""

MOST_DEVICES = 2**20
"""Devices of one job that can be planned for: an order of magnitude beyond the largest that was published (131,072)."""

FABRICS = ("nvlink", "pcie", "pcie_via_host", "infiniband", "ethernet", "memory", "other")
"""What a link is made of; ``pcie_via_host`` has no peer access, ``memory`` is that of ranks on one host."""

FEW_NODES = 4.0
"""Nodes up to which published bus bandwidths do not fall: reduce-scatter of H100 reaches 360, 345, 320, 300, 280, 260 GB/s on 4 to
128 nodes (6 % a doubling), GH200's are flat from 4 to 64; ``Link.lost_per_doubling`` is by default between them (assumed)."""

IN_SWITCH_GAIN = 2.0
"""Bus bandwidth counts an all-reduce's data twice (nccl-tests, PERFORMANCE.md), which switches that reduce move once."""


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

    def at(self, size: float) -> float:
        """The share at one size."""
        (first, share), *_ = self.points
        if size <= first:
            return share
        for (low, before), (high, after) in pairwise(self.points):
            if size <= high:
                return before + (after - before) * log(size / low) / log(high / low)
        return self.points[-1][1]


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What matmuls, by their FLOPs, and attention, by the tokens of a sequence, reach of the peak of one type."""

    matmul: Curve
    attention: Curve


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, or one CPU rank. Peaks are dense and without sparsity, in FLOP/s; bandwidths in bytes/s.

    ``usable_memory_bytes`` is what a program can allocate after the driver's context and the communication library.
    ``matmul`` gives efficiency by the FLOPs of one matmul; ``allocator_slack`` is what the caching allocator reserves above what
    is allocated, as a share of the memory that comes and goes within a step; ``overlaps`` says whether communication runs beside
    computation on streams of its own; ``power_watts`` is the most that its board may draw; ``price_per_hour`` is in US dollars.
    Both are None where unknown. ``by_type`` has the efficiencies of single types, where they were measured apart.
    ``attention_efficiency`` is that of FlashAttention-2, ``tuned_attention_gain`` how much faster kernels written for this chip are
    (cuDNN, FlashAttention-3 and 4). ``clock_headroom`` is the peak at the highest clock over that of the data sheet: above 1 where
    boards clock beyond it.
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
    by_type: dict[str, Efficiency] | None = added(None)
    clock_headroom: float = added(1.0)
    tuned_attention_gain: float = added(1.0)

    def __post_init__(self) -> None:
        check_name("device name", self.name)
        check_id("device kind", self.kind)
        if "fp32" not in self.peak_flops:
            raise InputError(f"device {self.name}: peak_flops for {', '.join(self.peak_flops)}", "needs fp32", "add it")
        if not 0 < self.usable_memory_bytes <= self.memory_bytes:
            law = f"must lie between 1 and memory_bytes {self.memory_bytes}"
            raise InputError(f"device {self.name}: usable_memory_bytes {self.usable_memory_bytes}", law, "correct it")

    def of_type(self, dtype: str, seq_len: int) -> "Device":
        """The device with the efficiencies of ``dtype``, and of sequences so long, where they were measured apart."""
        found = (self.by_type or {}).get(dtype)
        return self if found is None else replace(self, matmul=found.matmul, attention_efficiency=found.attention.at(seq_len))

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s of ``dtype``; a dtype that the device lacks runs as fp32."""
        return self.peak_flops.get(dtype, self.peak_flops["fp32"])


@dataclass(frozen=True, kw_only=True)
class Link:
    """A fabric as one rank sees it: achievable bus bandwidth of a collective (as nccl-tests defines it) and latency per hop.

    ``pair_bytes_per_second`` is what one point-to-point transfer reaches; ``fabric`` is one of FABRICS.
    ``line_bytes_per_second`` is the line rate of one direction as each device has it where all of a node send at once; None where
    unknown. ``in_switch``: switches reduce and multicast, so an all-reduce sends its data once instead of twice;
    ``reduce_bytes_per_second`` is the bus bandwidth of an all-reduce, where it is another one for that. Between nodes,
    ``lost_per_doubling`` is the share of its bandwidth that a collective loses each time its nodes double, from ``FEW_NODES`` on.
    """

    name: str
    bytes_per_second: float
    pair_bytes_per_second: float
    latency_seconds: float
    fabric: str = "other"
    source: str = ""
    line_bytes_per_second: float | None = added(None)
    in_switch: bool = added(False)
    reduce_bytes_per_second: float | None = added(None)
    lost_per_doubling: float = added(0.03)

    def __post_init__(self) -> None:
        if self.fabric not in FABRICS:
            raise not_among(f"link {self.name}: fabric {self.fabric}", self.fabric, FABRICS)
        line = self.line_bytes_per_second
        if line is not None and self.bytes_per_second > line * (IN_SWITCH_GAIN if self.in_switch else 1.0) * (1 + 1e-9):
            law = f"is at most the link's line rate, line_bytes_per_second {line:g}"
            raise InputError(f"link {self.name}: bytes_per_second {self.bytes_per_second:g}", law, "correct one of them")


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes that are alike, of a cluster in which not all are.

    ``speed`` is the share that their device reaches there of what it usually computes, and moves in its memory: below 1 where it
    runs hot, is capped or shared.
    """

    nodes: int
    device: Device
    intra: Link
    inter: Link
    speed: float = 1.0

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"group of {self.nodes} nodes", "has at least one node", "leave the group out")
        if not 0 < self.speed <= 1:
            raise InputError(f"speed {self.speed}", "is above 0 and at most 1", "write e.g. 0.8 for a device that runs at 80 %")

    @property
    def paced(self) -> Device:
        """The device as fast as it is there."""
        device, speed = self.device, self.speed
        peaks = {dtype: peak * speed for dtype, peak in device.peak_flops.items()}
        moved = device.memory_bytes_per_second * speed
        return replace(device, peak_flops=peaks, memory_bytes_per_second=moved, launch_seconds=device.launch_seconds / speed)


@shared
@dataclass(frozen=True, kw_only=True)
class Cluster:
    """``nodes`` nodes of ``gpus_per_node`` equal devices. ``host_memory_bytes`` is per node; None where unknown.

    ``host_bytes_per_second`` is device to host per device when all devices of a node copy at once;
    ``host_optimizer_bytes_per_second`` is the rate at which a node's CPUs update offloaded optimizer state, counted in the bytes
    that the update holds in host memory: for fp32 AdamW 16 per parameter (parameter, gradient, two moments).
    ``groups`` are the kinds of nodes in the order of their ranks, where not all are alike; then ``device``, ``intra`` and ``inter``
    have the least memory and the slowest figures of all, for what all ranks do together goes at the pace of the slowest.
    ``node_seconds_between_failures`` is a node's mean time until it fails or, as a spot instance, is taken away; None where
    unknown. ``restart_seconds`` pass from there until training goes on: at most 10 minutes to detect and diagnose (MegaScale,
    arXiv 2402.15627, section 6.3). ``storage_bytes_per_second`` is what each node writes of a checkpoint, beside the others.
    ``host_line_bytes_per_second`` is the line rate of a device's own link to its host, one direction; None where unknown.
    ``devices_share_one_gpu``: each device is a share of the same GPU, for trying out mixtures on one card with real kernels; its
    ranks reach each other by gloo through the host, as NCCL refuses two ranks on one GPU.
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
    assumed: tuple[str, ...] = field(default=(), compare=False)  # words, which another release may say otherwise
    groups: tuple[NodeGroup, ...] = ()
    node_seconds_between_failures: float | None = added(None)
    restart_seconds: float = added(600.0)
    storage_bytes_per_second: float = added(1e9)
    devices_share_one_gpu: bool = added(False)
    host_line_bytes_per_second: float | None = added(None)

    def __post_init__(self) -> None:
        check_name("cluster name", self.name)
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise InputError(f"cluster {self.nodes}x{self.gpus_per_node}", "has at least one device", "write e.g. 8x24GB")
        if self.devices > MOST_DEVICES:
            law = f"has at most {MOST_DEVICES:,} devices"
            raise InputError(f"cluster {self.nodes}x{self.gpus_per_node}", law, "plan for one job of them, e.g. 2048x8xH100")
        if self.devices_share_one_gpu and (self.nodes > 1 or self.device.kind == "cpu"):
            law = "one GPU is in one node, and a CPU's ranks share it anyway"
            raise InputError("devices_share_one_gpu", law, "write nodes: 1 and a GPU's name, or leave it out")
        if self.groups and sum(group.nodes for group in self.groups) != self.nodes:
            counts = " + ".join(str(group.nodes) for group in self.groups)
            raise InputError(f"cluster of {self.nodes} nodes", f"its groups have {counts}", "correct the groups")

    @property
    def devices(self) -> int:
        return self.nodes * self.gpus_per_node

    def gpus_for(self, ranks: int) -> int:
        """How many GPUs of a machine so many of its ranks take."""
        return min(ranks, 1) if self.devices_share_one_gpu else ranks

    def gpu_of(self, local_rank: int) -> int:
        """The number of the GPU that a rank of a machine has."""
        return 0 if self.devices_share_one_gpu else local_rank

    @property
    def seconds_between_failures(self) -> float:
        """Of the whole cluster, which waits for each of its nodes."""
        if self.node_seconds_between_failures is None:
            return DEVICE_SECONDS_BETWEEN_FAILURES / self.devices
        return self.node_seconds_between_failures / self.nodes

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s of all devices together, each at its own."""
        if not self.groups:
            return self.device.peak(dtype) * self.devices
        return sum(group.device.peak(dtype) * group.nodes for group in self.groups) * self.gpus_per_node
