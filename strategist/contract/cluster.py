"""Cluster: nodes, devices and links, with every figure that a price depends on."""

from dataclasses import field, replace
from itertools import pairwise
from math import log

from strategist.contract.codec import added, shared
from strategist.contract.name_rules import check_id, check_name
from strategist.errors import InputError, not_among
from strategist.frozen import frozen

DEVICE_SECONDS_BETWEEN_FAILURES = 16_384 * 54 * 86_400 / 419
"""Mean seconds between failures per device.

Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 H100 (arXiv 2407.21783, section 3.3.4).
"""

MAX_DEVICES = 2**20
"""Largest number of devices of one job: eight times the largest published job (131,072)."""

FABRICS = ("nvlink", "pcie", "pcie_via_host", "infiniband", "ethernet", "memory", "other")
"""Kinds of links. ``pcie_via_host``: PCIe without peer access. ``memory``: host memory between ranks on one host."""

UNDEGRADED_NODES = 4.0
"""Number of nodes up to which bus bandwidth does not fall.

Published reduce-scatter of H100 reaches 360, 345, 320, 300, 280, 260 GB/s on 4 to 128 nodes (6 % a doubling), that of GH200 is flat
from 4 to 64. The default of ``Link.lost_per_doubling`` lies between the two (assumed).
"""

IN_SWITCH_GAIN = 2.0
"""Bus bandwidth counts the data of an all-reduce twice (nccl-tests, PERFORMANCE.md); switches that reduce move them once."""


@frozen
class Curve:
    """Efficiency by size: points ``(size, share of the peak)`` with rising sizes; linear in log size between points, else constant.

    ``origin`` is the source: ``measured: ...``, ``fitted: ...`` or ``assumed: ...``.
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
        """Share of the peak at one size."""
        (first, share), *_ = self.points
        if size <= first:
            return share
        for (low, before), (high, after) in pairwise(self.points):
            if size <= high:
                return before + (after - before) * log(size / low) / log(high / low)
        return self.points[-1][1]


@frozen
class Efficiency:
    """Efficiency of one dtype: of matmuls by FLOPs of the matmul, of attention by sequence length in tokens."""

    matmul: Curve
    attention: Curve


@frozen
class Device:
    """One accelerator, or one CPU rank. Peaks are dense (without sparsity) in FLOP/s; bandwidths are in bytes/s.

    usable_memory_bytes: memory that a program can allocate, without the driver's context and the communication library.
    matmul: efficiency by the FLOPs of one matmul.
    attention_efficiency: of FlashAttention-2. tuned_attention_gain: speed-up of kernels tuned to this chip (cuDNN, FlashAttention-3
        and 4).
    compute_capability: NVIDIA's, where kernels depend on it.
    float8_gain: rate of matmuls in float8 over that in bf16, where measured; None stands for the ratio of the peaks.
    indexed_values_per_second: values that an elementwise kernel of torch writes where operands are broadcast or strided, so that
        it computes the address of each value; None stands for kernels that memory alone limits.
    allocator_slack: memory that the caching allocator reserves above allocated memory, as a share of the memory that is allocated
        and freed within a step.
    overlaps: communication runs concurrently with computation, on streams of its own.
    power_watts: power limit of the board. price_per_hour: US dollars. Both are None where unknown.
    by_type: efficiencies by dtype, where measured separately.
    clock_headroom: peak at the highest clock over the data sheet's peak; above 1 where boards clock higher.
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
    compute_capability: float = added(0.0)
    float8_gain: float | None = added(None)
    indexed_values_per_second: float | None = added(None)

    def __post_init__(self) -> None:
        check_name("device name", self.name)
        check_id("device kind", self.kind)
        if "fp32" not in self.peak_flops:
            raise InputError(f"device {self.name}: peak_flops for {', '.join(self.peak_flops)}", "needs fp32", "add it")
        if not 0 < self.usable_memory_bytes <= self.memory_bytes:
            law = f"must lie between 1 and memory_bytes {self.memory_bytes}"
            raise InputError(f"device {self.name}: usable_memory_bytes {self.usable_memory_bytes}", law, "correct it")

    def of_type(self, dtype: str, seq_len: int) -> "Device":
        """The device with the efficiencies of ``dtype`` at this sequence length; unchanged where those were not measured
        separately.
        """
        found = (self.by_type or {}).get(dtype)
        return self if found is None else replace(self, matmul=found.matmul, attention_efficiency=found.attention.at(seq_len))

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s of ``dtype``; a dtype without an entry runs as fp32."""
        return self.peak_flops.get(dtype, self.peak_flops["fp32"])


@frozen
class Link:
    """A link as one rank sees it: achievable bus bandwidth of a collective (as nccl-tests defines it) and latency per hop.

    pair_bytes_per_second: rate of one point-to-point transfer.
    fabric: one of FABRICS.
    line_bytes_per_second: line rate per device in one direction while all devices of a node send; None where unknown.
    in_switch: switches reduce and multicast, so that an all-reduce sends its data once instead of twice.
    reduce_bytes_per_second: bus bandwidth of an all-reduce, where it differs for that reason.
    lost_per_doubling: between nodes, the share of bandwidth that a collective loses with each doubling of nodes beyond
        ``UNDEGRADED_NODES``.
    meshed_devices: number of devices that links join pair by pair, without a switch, so that a collective among some of them has
        only their own links; 0 with switches.
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
    meshed_devices: int = added(0)

    def __post_init__(self) -> None:
        if self.fabric not in FABRICS:
            raise not_among(f"link {self.name}: fabric {self.fabric}", self.fabric, FABRICS)
        line = self.line_bytes_per_second
        if line is not None and self.bytes_per_second > line * (IN_SWITCH_GAIN if self.in_switch else 1.0) * (1 + 1e-9):
            law = f"is at most the link's line rate, line_bytes_per_second {line:g}"
            raise InputError(f"link {self.name}: bytes_per_second {self.bytes_per_second:g}", law, "correct one of them")


@frozen
class NodeGroup:
    """Equal nodes within a heterogeneous cluster.

    ``speed``: share of the device's usual compute and memory rates that it reaches in these nodes; below 1 where it is hot,
    power-capped or shared.
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
    def scaled_by_speed(self) -> Device:
        """The device with its rates scaled by ``speed``."""
        device, speed = self.device, self.speed
        peaks = {dtype: peak * speed for dtype, peak in device.peak_flops.items()}
        memory_rate = device.memory_bytes_per_second * speed
        return replace(device, peak_flops=peaks, memory_bytes_per_second=memory_rate, launch_seconds=device.launch_seconds / speed)


@shared
@frozen
class Cluster:
    """``nodes`` nodes with ``gpus_per_node`` devices each. ``host_memory_bytes`` is per node; None where unknown.

    host_bytes_per_second: copy rate between device and host, per device, while all devices of a node copy.
    host_optimizer_bytes_per_second: rate at which a node's CPUs update offloaded optimizer states, in bytes that the update holds
        in host memory: for fp32 AdamW 16 per parameter (parameter, gradient, two moments).
    groups: the kinds of nodes in rank order, where nodes differ. ``device``, ``intra`` and ``inter`` then have the least memory and
        the slowest figures of all groups, because the slowest rank determines the pace of collective work.
    node_seconds_between_failures: mean time until a node fails or, as a spot instance, is reclaimed; None where unknown.
    restart_seconds: from the failure until training resumes: at most 10 minutes to detect and diagnose (MegaScale, arXiv
        2402.15627, section 6.3).
    storage_bytes_per_second: rate at which each node writes a checkpoint while all nodes write.
    devices_share_one_gpu: every device is a share of the same GPU, for tests of mixed parallelism on one card with real kernels.
        Ranks communicate by gloo through the host, because NCCL refuses two ranks on one GPU.
    host_line_bytes_per_second: line rate of a device's link to its host in one direction; None where unknown.
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
    assumed: tuple[str, ...] = field(default=(), compare=False)  # text, which may change with a release
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
        if self.devices > MAX_DEVICES:
            law = f"has at most {MAX_DEVICES:,} devices"
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
        """Number of GPUs that this many ranks of one machine use."""
        return min(ranks, 1) if self.devices_share_one_gpu else ranks

    def gpu_of(self, local_rank: int) -> int:
        """Index of the GPU of a local rank."""
        return 0 if self.devices_share_one_gpu else local_rank

    @property
    def seconds_between_failures(self) -> float:
        """Mean time between failures of the whole cluster: a failure of any node stops the job."""
        if self.node_seconds_between_failures is None:
            return DEVICE_SECONDS_BETWEEN_FAILURES / self.devices
        return self.node_seconds_between_failures / self.nodes

    def peak(self, dtype: str) -> float:
        """Sum of peak FLOP/s of ``dtype`` over all devices."""
        if not self.groups:
            return self.device.peak(dtype) * self.devices
        return sum(group.device.peak(dtype) * group.nodes for group in self.groups) * self.gpus_per_node
