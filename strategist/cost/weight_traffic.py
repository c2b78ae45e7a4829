"""Traffic of weights and gradients outside of matmuls: dequantization, casts, gradient accumulation, copies around collectives."""

import numpy as np

from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import autocasts
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.layer_widths import compute_bytes
from strategist.cost.model_states import Stage, StateBytes

FP32_BYTES = 4.0


def weight_bytes(
    stage: Stage, head: float, repeated_matmuls: Floats, per: StateBytes, workload: Workload, stack: Stack, v: View
) -> Floats:
    """Bytes that a stage moves per micro-batch for the weights of its layers, and of the ``head`` if it has one."""
    layers = stage.layers * stage.gathered_layer
    cast = cast_bytes(layers, head * stage.has_head / v.tp, repeated_matmuls, per, workload, stack, v)
    return dequantized_bytes(layers, repeated_matmuls, per, stack, v) + cast + added_gradient_bytes(stage, per, stack, v)


def cast_bytes(
    layers: Floats, head: Floats, repeated_matmuls: Floats, per: StateBytes, workload: Workload, stack: Stack, v: View
) -> Floats:
    """Bytes of autocast's casts: of each weight once per pass, and of its gradient back."""
    passes = np.where(autocasts(stack, workload, v), compute_bytes(workload) + FP32_BYTES, 0.0)
    backward = 0.0 if per.frozen else 1.0
    return passes * ((1 + backward + repeated_matmuls) * layers + (1 + backward) * head)


def added_gradient_bytes(stage: Stage, per: StateBytes, stack: Stack, v: View) -> Floats:
    """Bytes moved to add gradients to those of earlier micro-batches: two reads and one write; of shards if every micro-batch is
    reduced.

    FSDP2 adds unsharded gradients in the gathered type to sums in the type of the reduction
    (``accumulate_unsharded_grad_if_needed``).
    """
    unsharded = stage.layers * stage.gathered_layer + stage.ends / v.tp
    fsdp = v.no_sync & ~v.ddp & (stack.memory_traits.parameters == "shards")
    each = np.where(fsdp, per.gathered + 2 * v.reduce_bytes, 3 * per.gradient) * (1 - 1 / v.accumulation)
    if stack.family == "megatron":
        each = _whole_gradient_bytes(per, stack, v)
    return each * np.where(v.no_sync, unsharded, stage.shard) * (per.trained if per.frozen else 1.0)


def _whole_gradient_bytes(per: StateBytes, stack: Stack, v: View) -> Floats:
    """Bytes per parameter to add a micro-batch's gradients to whole sums. Kernels read both and write the sum; where sums are wider
    than gradients, the first micro-batch is added, too (nanotron, optim/gradient_accumulator.py: FP32GradientAccumulator). Matmuls
    that accumulate move a sum beside their computing.
    """
    if stack.accumulation == "matmuls":
        return np.zeros_like(v.tp)
    if per.gradient > per.gathered:
        return np.full_like(v.tp, per.gathered + 2 * per.gradient)
    return 3 * per.gradient * (1 - 1 / v.accumulation)


def dequantized_bytes(parameters: Floats, repeated_matmuls: Floats, per: StateBytes, stack: Stack, v: View) -> Floats:
    """Memory traffic of dequantization: a 4-bit weight is read and written in the compute type before each use: forward,
    backward, and when recomputed.
    """
    if per.stored >= 1.0:
        return np.zeros_like(parameters)
    bytes_per_weight = per.stored + 2 * per.gathered + np.where(v.compiled, 0.0, stack.unpacking_bytes)
    return (2 + repeated_matmuls) * parameters * bytes_per_weight


def sharding_bytes(stage: Stage, per: StateBytes, stack: Stack, v: View) -> Floats:
    """Memory traffic of the copies around FSDP2's collectives, of one layer and micro-batch: gathered parameters out of the
    receive buffer, and gradients into the send buffer (torch/distributed/fsdp/_fully_shard: all_gather_copy_out,
    reduce_scatter_copy_in). FSDP1's flat parameters need no copies.
    """
    if stack.memory_traits.parameters != "shards" or stack.memory_traits.flat:
        return np.zeros_like(v.tp)
    gathers = np.where(v.frees_parameters, 2.0, 1.0)
    reduced = (per.gathered + v.reduce_bytes) * (per.trained if per.frozen else 1.0) * np.where(v.no_sync, 0.0, 1.0)
    return np.where(v.fsdp_ranks > 1, stage.gathered_layer * (gathers * 2 * per.gathered + reduced), 0.0)
