"""Optimizer update on the device: its memory traffic, and Muon's matmuls."""

import numpy as np

from strategist.contract.cluster import Device
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.layer_flops import interpolate
from strategist.cost.model_states import Stage, StateBytes
from strategist.cost.muon import NEWTON_SCHULZ_STEPS, muon_matrices, newton_schulz_flops
from strategist.cost.rates import NO_MATMULS, Matmuls

FUSED_BYTES = {"adamw": 28.0, "adamw_bf16": 20.0, "adamw8bit": 40.0, "muon": 20.0, "sgd": 12.0}
"""Bytes that an update in one kernel reads and writes a parameter: parameter and moments both ways, gradient once. With moments of
8 bits it moves 16, but looks each value up: torchao's takes the time of 40 on an H100 (profiles/measurements/rows/h100-sxm.jsonl);
that others' take as long is assumed."""

FOREACH_BYTES = 52.0
"""Additional bytes per parameter that AdamW moves with one kernel per operation: 20 passes over fp32 values instead of 7
(torch/optim/adamw.py: ``_multi_tensor_adamw``). Measured: 1.9 billion parameters take 24.6 ms longer on an H200
(profiles/measurements/rows/h200.jsonl), 4.0 TB/s.
"""

LAYER_TENSORS = 6.0
"""Parameters of a layer as tensors: two norms and four linears, as queries, keys and values are joined, and gate and up
(nanotron/models/llama.py).
"""

NORM_PASSES = 1.0
"""Passes over gradients to compute their norm."""


def update_bytes(shard: Floats, per: StateBytes, workload: Workload, stack: Stack, v: View) -> Floats:
    """Memory traffic of the update with gradient clipping; if the hosts update, only the norm's, if the device still has the
    gradients.
    """
    norm = NORM_PASSES * per.gradient
    traffic = FUSED_BYTES[workload.optimizer] + norm + scaling_passes(workload, stack, v) * per.gradient
    if stack.memory_traits.foreach and workload.optimizer == "adamw":
        traffic = traffic + FOREACH_BYTES
    traffic = np.where(v.offload_optimizer, norm, np.where(v.offload_all | v.streamed, 0.0, traffic))
    return shard * traffic * (per.trained if per.frozen else 1.0)


def scaling_passes(workload: Workload, stack: Stack, v: View) -> Floats:
    """Passes over gradients to scale them for clipping: read and written (torch.nn.utils.clip_grad_norm_), or only written if
    the update kernel scales them; none if gradients are freed before their norm is known.
    """
    return np.where(v.update_at_once, 0.0, 1.0 if stack.scales_in_update and workload.optimizer == "adamw" else 2.0)


def piece_copies(stage: Stage, stack: Stack, v: View) -> Floats:
    """Number of kernels that copy the ranks' pieces of a stage's updated parameters, one by one."""
    sharded = stack.copies_pieces & (v.fsdp_ranks > 1) & ~v.reshard
    return np.where(sharded, stage.layers * LAYER_TENSORS * v.fsdp_ranks, 0.0)


def update_matmuls(model: ModelShape, stage: Stage, workload: Workload, stack: Stack, device: Device, v: View) -> Matmuls:
    """Muon's matmuls on one rank. With torch each rank computes whole matrices and keeps its shards; Megatron distributes the
    matrices over ranks.
    """
    matrices = muon_matrices(model, workload)
    if not matrices:
        return NO_MATMULS
    flops = sum(count * newton_schulz_flops(rows, columns) for count, rows, columns in matrices)
    ranks = np.ones_like(v.tp) if stack.family == "torch" else v.fsdp_ranks * v.tp
    matmul_flops = max(flops / (3 * NEWTON_SCHULZ_STEPS * sum(count for count, *_ in matrices)), 1.0)
    efficiency = interpolate(np.full_like(ranks, matmul_flops, dtype=np.float64), device.matmul.points)
    peak = device.peak("bf16")
    return Matmuls(
        flops=stage.layers * flops / ranks, peak_flops=peak, size=np.full_like(efficiency, matmul_flops), efficiency=efficiency
    )
