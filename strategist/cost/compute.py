"""Computation: seconds of one micro-batch on one rank, by part."""

from dataclasses import dataclass, replace

import numpy as np

from strategist.contract.cluster import Device
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.states import Stage, StateBytes
from strategist.cost.view import Floats, View
from strategist.cost.work import HeadWork, LayerWork, interpolate

ATTENTION_BACKWARD = 2.5
"""FLOPs of flash attention's backward pass over its forward pass (arXiv 2307.08691, section 4.1)."""

OPTIMIZER_TRAFFIC_BYTES = {"adamw": 28.0, "adamw_bf16": 20.0, "adamw8bit": 16.0, "muon": 20.0, "sgd": 12.0}
"""Bytes a fused update reads and writes a parameter: parameter and moments both ways, gradient once."""


@dataclass(frozen=True, kw_only=True)
class LayerSeconds:
    """One layer: forward, and backward with what is computed again; by part over both."""

    forward: Floats
    backward: Floats
    matmul: Floats
    attention: Floats
    memory_bound: Floats
    recompute: Floats


def as_computed(device: Device, stack: Stack) -> Device:
    """The device as a stack's kernels find it: its attention; and sums in fp16 are faster on consumer cards, but not there."""
    if stack.attention_kernels == "tuned":
        device = replace(device, attention_efficiency=device.attention_efficiency * device.tuned_attention_gain)
    if not stack.fp16_sums or "fp16_sums" not in device.peak_flops:
        return device
    gain = device.peak_flops["fp16_sums"] / device.peak("fp16")
    peaks = {**device.peak_flops, "fp16": gain * device.peak("fp16")}
    return replace(device, peak_flops=peaks, attention_efficiency=device.attention_efficiency / gain)


def layer_seconds(work: LayerWork, per: StateBytes, workload: Workload, device: Device, v: View) -> LayerSeconds:
    """A backward matmul pass is two forward passes, one where the weights are frozen. Matmuls of few
    tokens take as long as their weights take to be read (the roofline; doi 10.1145/1498765.1498785)."""
    bandwidth = device.memory_bytes_per_second * device.memory_efficiency
    dense = work.matmul_flops / _matmul_rate(work.matmul_flops / work.matmuls, workload, device, v)
    matmul = np.maximum(dense, work.weight_bytes / bandwidth)
    if np.any(work.expert_flops):
        experts = work.expert_flops / _matmul_rate(work.expert_size, workload, device, v)
        matmul = matmul + np.maximum(experts, work.expert_bytes / bandwidth)
    attention = work.attention_flops / (device.peak(workload.compute_dtype) * device.attention_efficiency)
    moved = (work.moved_bytes + work.cast_bytes) / bandwidth
    moved_back = (work.moved_backward_bytes + work.cast_bytes) / bandwidth
    again = work.repeated_matmuls * matmul + work.repeated * attention + work.repeated_moved * moved
    forward = matmul + attention + moved
    backward = (1.0 if per.frozen else 2.0) * matmul + ATTENTION_BACKWARD * attention + moved_back + again
    return LayerSeconds(
        forward=forward,
        backward=backward,
        matmul=(2.0 if per.frozen else 3.0) * matmul,
        attention=(1 + ATTENTION_BACKWARD) * attention,
        memory_bound=moved + moved_back,
        recompute=again,
    )


def _matmul_rate(size: Floats, workload: Workload, device: Device, v: View) -> Floats:
    """FLOP/s of matmuls of ``size`` FLOPs. At the rate of float8 one is over sooner, so it counts as smaller by as much."""
    rate: Floats = device.peak(workload.compute_dtype) * interpolate(size, device.matmul.points)
    if not v.float8.any():
        return rate
    gain = device.peak_flops.get("fp8", device.peak("bf16")) / device.peak("bf16")
    return np.where(v.float8, gain * device.peak("bf16") * interpolate(size / gain, device.matmul.points), rate)


def launch_seconds(host: Floats, busy: Floats, device: Device) -> Floats:
    """A GPU works while the host launches ahead, so what exceeds its work shows; on a CPU it is the same core.

    Kernels are not equally long, so near balance some wait: both add up in the fourth power.
    """
    if device.kind != "cuda":
        return host
    longer = np.maximum(np.maximum(host, busy), 1e-30)
    shorter: Floats = np.minimum(host, busy) / longer
    squared = shorter * shorter
    return longer * np.sqrt(np.sqrt(1 + squared * squared)) - busy


def head_seconds(work: HeadWork, per: StateBytes, workload: Workload, device: Device) -> tuple[Floats, Floats]:
    """Forward and backward of the head: in matmuls, and in elementwise work of the loss."""
    rate = device.peak(workload.compute_dtype) * interpolate(work.matmul_flops, device.matmul.points)
    moved = work.moved_bytes / (device.memory_bytes_per_second * device.memory_efficiency)
    return (2.0 if per.frozen else 3.0) * work.matmul_flops / rate, moved


def dequantize_seconds(parameters: Floats, layer: LayerWork, per: StateBytes, device: Device, v: View) -> Floats:
    """A 4-bit weight is read and written out in the compute type before each use: forward, backward, and again when recomputed."""
    if per.stored >= 1.0:
        return np.zeros_like(v.tp)
    uses = 2 + layer.repeated_matmuls
    return uses * parameters * (per.stored + 2 * per.gathered) / (device.memory_bytes_per_second * device.memory_efficiency)


def sharding_seconds(stage: Stage, per: StateBytes, stack: Stack, device: Device, v: View) -> Floats:
    """One layer's copies of one micro-batch around FSDP2's collectives: each gathered parameter out of the buffer that arrives, and
    each gradient into the one that leaves (torch/distributed/fsdp/_fully_shard: all_gather_copy_out, reduce_scatter_copy_in).
    FSDP1's flat parameters lie in such buffers."""
    if stack.keeps.parameters != "shards" or stack.keeps.flat:
        return np.zeros_like(v.tp)
    gathers = np.where(v.reshard | v.reshard_subgroup, 2.0, 1.0)
    reduced = (per.gathered + v.reduce_bytes) * (per.trained if per.frozen else 1.0) * np.where(v.postponed, 0.0, 1.0)
    moved = stage.gathered_layer(v) * (gathers * 2 * per.gathered + reduced)
    return np.where(v.fsdp_ranks > 1, moved / (device.memory_bytes_per_second * device.memory_efficiency), 0.0)


def optimizer_seconds(shard: Floats, per: StateBytes, workload: Workload, device: Device) -> Floats:
    """The update on the device: pure memory traffic."""
    traffic = OPTIMIZER_TRAFFIC_BYTES[workload.optimizer] * (per.trained if per.frozen else 1.0)
    return shard * traffic / (device.memory_bytes_per_second * device.memory_efficiency)
