"""Rates that devices, hosts and matmuls reach, as columns or single figures, before and after a calibration."""

from dataclasses import replace
from math import inf, log2

import numpy as np

from strategist.contract.cluster import Cluster, Device
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import LARGE_MATMUL_FLOPS, Factors, slowest_launch_seconds
from strategist.cost.candidate_arrays import Floats, Number, View
from strategist.cost.layer_flops import HeadWork, LayerWork, interpolate
from strategist.cost.layer_widths import compute_bytes
from strategist.frozen import frozen


@frozen
class Matmuls:
    """Matmuls of one forward pass.

    flops: FLOPs of all of them.
    peak_flops: peak rate of their type (FLOP/s).
    size: FLOPs of one matmul, the abscissa of efficiency curves.
    efficiency: share of the peak at that size.
    weight_bytes: bytes of the weights that they read.
    """

    flops: Number
    peak_flops: Number
    size: Number
    efficiency: Number
    weight_bytes: Number = 0.0

    def seconds(self, factors: Factors, memory_rate: Number) -> Floats:
        """Seconds of the matmuls by the roofline: at least the time of reading their weights (doi 10.1145/1498765.1498785)."""
        size_factor = np.minimum(1.0, self.size / LARGE_MATMUL_FLOPS) ** factors.small if np.any(factors.small) else 1.0
        reached_efficiency = np.minimum(self.efficiency * size_factor / factors.compute, np.maximum(self.efficiency, 1.0))
        seconds: Floats = np.maximum(self.flops / (self.peak_flops * reached_efficiency), self.weight_bytes / memory_rate)
        return seconds


NO_MATMULS = Matmuls(flops=0.0, peak_flops=1.0, size=1.0, efficiency=1.0)
"""Matmuls that take no time."""


@frozen
class Rates:
    """Rates that a device and its host reach; efficiencies are shares of a peak, rates are in bytes/s or FLOP/s.

    intra_bytes_per_second: the link inside the node if it shares lanes with the host link, else 0.
    slowest_launch_seconds: upper limit of an eager kernel launch on any host.
    """

    attention_flops: Number
    attention_efficiency: Number
    memory_bytes_per_second: Number
    memory_efficiency: Number
    indexed_values_per_second: Number
    launch_seconds: Number
    slowest_launch_seconds: Number
    host_bytes_per_second: Number
    host_line_bytes_per_second: Number
    host_optimizer_bytes_per_second: Number
    intra_bytes_per_second: Number
    nodes: Number
    launches_ahead: Number
    overlaps: Number

    def calibrated(self, factors: Factors) -> "Rates":
        """The rates divided by a calibration's factors; none exceeds its peak or line rate."""
        line = np.maximum(self.host_line_bytes_per_second, self.host_bytes_per_second)
        return replace(
            self,
            attention_efficiency=np.minimum(self.attention_efficiency / (factors.compute * factors.attention), 1.0),
            memory_efficiency=np.minimum(self.memory_efficiency / (factors.compute * factors.memory_bound), 1.0),
            indexed_values_per_second=self.indexed_values_per_second / (factors.compute * factors.memory_bound),
            launch_seconds=np.minimum(self.launch_seconds * factors.launch, self.slowest_launch_seconds),
            host_bytes_per_second=np.minimum(self.host_bytes_per_second / factors.host, line),
            host_optimizer_bytes_per_second=self.host_optimizer_bytes_per_second / factors.host,
        )

    @property
    def memory_rate(self) -> Number:
        """Bytes/s of elementwise kernels."""
        return self.memory_bytes_per_second * self.memory_efficiency

    @property
    def attention_rate(self) -> Number:
        """FLOP/s of flash attention."""
        return self.attention_flops * self.attention_efficiency

    @property
    def shared_link(self) -> Number:
        """Share of a device's host link that collectives inside the node use: none over NVLink. Rings without peer access are
        slower than the link and leave room.
        """
        return np.minimum(1.0, self.intra_bytes_per_second / self.host_bytes_per_second)


TENSOR_CORE_BYTES = 16
"""Operand alignment in bytes that matmuls need to run on tensor cores (cuBLAS documentation, "Tensor Core Usage";
github.com/NVIDIA/cutlass issue 75).
"""


def rates_of(cluster: Cluster, stack: Stack, workload: Workload, model: ModelShape) -> Rates:
    """Rates of a cluster's devices with the kernels of a stack."""
    device = with_stack_kernels(cluster.device, stack)
    kernels = _attention_kernels(device, stack, workload, model)
    gains = {"first": FIRST_ATTENTION_SHARE, "portable": 1.0, "tuned": device.tuned_attention_gain}
    return Rates(
        attention_flops=_attention_peak(device, stack, workload, model),
        attention_efficiency=device.attention_efficiency * gains[kernels] * _head_share(kernels, stack, model),
        memory_bytes_per_second=device.memory_bytes_per_second,
        memory_efficiency=device.memory_efficiency,
        indexed_values_per_second=device.indexed_values_per_second or inf,
        launch_seconds=device.launch_seconds,
        slowest_launch_seconds=slowest_launch_seconds(device),
        host_bytes_per_second=cluster.host_bytes_per_second,
        host_line_bytes_per_second=cluster.host_line_bytes_per_second or inf,
        host_optimizer_bytes_per_second=cluster.host_optimizer_bytes_per_second,
        intra_bytes_per_second=cluster.intra.bytes_per_second if cluster.intra.fabric.startswith("pcie") else 0.0,
        nodes=float(cluster.nodes),
        launches_ahead=float(device.kind == "cuda"),
        overlaps=float(device.overlaps),
    )


def _attention_peak(device: Device, stack: Stack, workload: Workload, model: ModelShape) -> float:
    """Peak FLOP/s of attention. Unfused attention multiplies each head separately, and heads that are not aligned cannot use
    tensor cores. Flash attention pads its heads.
    """
    peak_flops = device.peak(workload.compute_dtype)
    aligned = model.head_size * compute_bytes(workload) % TENSOR_CORE_BYTES == 0
    return peak_flops if aligned or stack.attention == "flash" else min(peak_flops, device.peak("fp32"))


FIRST_ATTENTION_SHARE = 0.43
"""Rate of FlashAttention as of 2022, in CUDA or Triton, over that of FlashAttention-2: heads of 128, causal, forward and backward.
On an A100 61 to 83 of 133 to 189 TFLOP/s, on an H100 109 to 137 of 221 to 328, from 1k to 16k tokens
(github.com/Dao-AILab/flash-attention, assets/flash2_a100_fwd_bwd_benchmark.png, flash2_h100_fwd_bwd_benchmark.png).
"""


HEAD_64_SHARES = {"first": 1.0, "portable": 0.88, "tuned": 0.81}
"""Rate of flash attention with heads of 64 over that with 128, forward and backward, by kernels: twice as many exponentials for
each FLOP. FlashAttention-2 0.86 to 0.91 on A100 and H100, from 512 to 16k tokens (Dao-AILab/flash-attention: assets); cuDNN and
FlashAttention-3 on an H100 0.69 to 0.77 forward and 0.85 backward (arXiv 2407.08608, figures 5 and 6). Of the first kernels the
rate is not known.
"""


BLACKWELL = 10.0
"""Compute capability from which on torchtitan puts cuDNN's attention before FlashAttention-2 (torchtitan/models/attention.py of
2025: ``has_cuda_capability(10, 0)``).
"""


def _attention_kernels(device: Device, stack: Stack, workload: Workload, model: ModelShape) -> str:
    """Kernels of attention that a stack runs on this device: ``first``, ``portable`` or ``tuned``. torchtitan masks windows and
    documents by FlexAttention, not by cuDNN.
    """
    if stack.attention_kernels != "tuned_on_blackwell":
        return stack.attention_kernels
    masked = model.sliding_window > 0 or workload.document_tokens > 0
    return "tuned" if device.compute_capability >= BLACKWELL and not masked else "portable"


def _head_share(kernels: str, stack: Stack, model: ModelShape) -> float:
    """Rate of attention with the model's heads over that with heads of 128, for which curves of devices hold: a power of the
    head size between 64 and 128, constant beyond. Matmuls of unfused attention compute no exponentials.
    """
    if stack.attention != "flash":
        return 1.0
    halvings = log2(128 / min(max(model.head_size, 64), 128))
    share: float = HEAD_64_SHARES[kernels] ** halvings
    return share


def with_stack_kernels(device: Device, stack: Stack) -> Device:
    """The device with a stack's accumulation in fp16, which makes matmuls faster on consumer cards, but not attention."""
    if not stack.fp16_sums or "fp16_sums" not in device.peak_flops:
        return device
    gain = device.peak_flops["fp16_sums"] / device.peak("fp16")
    peaks = {**device.peak_flops, "fp16": gain * device.peak("fp16")}
    return replace(device, peak_flops=peaks, attention_efficiency=device.attention_efficiency / gain)


def dense_matmuls(work: LayerWork, workload: Workload, device: Device, v: View) -> Matmuls:
    """Matmuls of a layer that process all tokens."""
    return _matmuls(work.matmul_flops, work.matmul_flops / work.matmuls, work.weight_bytes, workload, device, v)


def expert_matmuls(work: LayerWork, workload: Workload, device: Device, v: View) -> Matmuls:
    """Matmuls of a layer's routed experts."""
    if not work.expert_flops.any():
        return NO_MATMULS
    return _matmuls(work.expert_flops, work.expert_size, work.expert_bytes, workload, device, v)


def head_matmuls(work: HeadWork, workload: Workload, device: Device) -> Matmuls:
    """The last projection, which is never in float8."""
    efficiency = interpolate(work.matmul_flops, device.matmul.points)
    peak = device.peak(workload.compute_dtype)
    return Matmuls(flops=work.matmul_flops, peak_flops=peak, size=work.matmul_flops, efficiency=efficiency)


def _matmuls(flops: Floats, size: Floats, weight_bytes: Floats, workload: Workload, device: Device, v: View) -> Matmuls:
    """Matmuls at their peak rate. In float8 a matmul ends sooner, so its size on the efficiency curve, which holds for bf16, is
    smaller by the same ratio.
    """
    peak: Number = device.peak(workload.compute_dtype)
    if v.float8.any():
        gain = device.float8_gain or device.peak_flops.get("fp8", device.peak("bf16")) / device.peak("bf16")
        peak = np.where(v.float8, gain * device.peak("bf16"), peak)
        size = np.where(v.float8, size / gain, size)
    efficiency = interpolate(size, device.matmul.points)
    return Matmuls(flops=flops, peak_flops=peak, size=size, efficiency=efficiency, weight_bytes=weight_bytes)
