"""Computation: seconds of one micro-batch on one rank, by part."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.stack import Stack
from strategist.cost.calibration import Factors
from strategist.cost.candidate_arrays import Floats, Number, View
from strategist.cost.layer_flops import LayerWork
from strategist.cost.model_states import Stage, StateBytes
from strategist.cost.rates import Matmuls, Rates

ATTENTION_BACKWARD = 2.5
"""FLOPs of flash attention's backward pass over its forward pass (arXiv 2307.08691, section 4.1)."""


@dataclass(frozen=True, kw_only=True)
class LayerSeconds:
    """One layer: forward, and backward with what is computed again; by part over both."""

    forward: Floats
    backward: Floats
    matmul: Floats
    attention: Floats
    memory_bound: Floats
    recompute: Floats


@dataclass(frozen=True, kw_only=True)
class LayerCompute:
    """What a device computes of one layer and micro-batch, before any rate is stretched.

    ``backward_matmuls``: a backward matmul pass is two forward passes, one where the weights are frozen. ``attention_flops``,
    ``moved_bytes``: of the forward pass. ``moved_backward_bytes``: of the backward pass. ``repeated``, ``repeated_matmuls``,
    ``repeated_moved``: shares of the forward pass that recomputation repeats.
    """

    dense: Matmuls
    experts: Matmuls
    backward_matmuls: Number
    attention_flops: Floats
    moved_bytes: Floats
    moved_backward_bytes: Floats
    repeated: Floats
    repeated_matmuls: Floats
    repeated_moved: Floats


def layer_compute(work: LayerWork, per: StateBytes, dense: Matmuls, experts: Matmuls) -> LayerCompute:
    """What the work of a layer asks of a device."""
    return LayerCompute(
        dense=dense,
        experts=experts,
        backward_matmuls=1.0 if per.frozen else 2.0,
        attention_flops=work.attention_flops,
        moved_bytes=work.moved_bytes + work.cast_bytes,
        moved_backward_bytes=work.moved_backward_bytes + work.cast_bytes,
        repeated=work.repeated,
        repeated_matmuls=work.repeated_matmuls,
        repeated_moved=work.repeated_moved,
    )


def layer_seconds(layer: LayerCompute, rates: Rates, factors: Factors) -> LayerSeconds:
    """Seconds of one layer; ``rates`` are stretched by the ``factors`` already."""
    matmul = layer.dense.seconds(factors, rates.memory_rate)
    if np.any(layer.experts.flops):
        matmul = matmul + layer.experts.seconds(factors, rates.memory_rate)
    attention = layer.attention_flops / rates.attention_rate
    moved, moved_back = layer.moved_bytes / rates.memory_rate, layer.moved_backward_bytes / rates.memory_rate
    again = layer.repeated_matmuls * matmul + layer.repeated * attention + layer.repeated_moved * moved
    return LayerSeconds(
        forward=matmul + attention + moved,
        backward=layer.backward_matmuls * matmul + ATTENTION_BACKWARD * attention + moved_back + again,
        matmul=(1 + layer.backward_matmuls) * matmul,
        attention=(1 + ATTENTION_BACKWARD) * attention,
        memory_bound=moved + moved_back,
        recompute=again,
    )


def launch_seconds(host: Floats, busy: Floats, rates: Rates) -> Floats:
    """A GPU works while the host launches ahead, so what exceeds its work shows; on a CPU it is the same core.

    Kernels are not equally long, so near balance some wait: both add up in the fourth power.
    """
    longer = np.maximum(np.maximum(host, busy), 1e-30)
    shorter: Floats = np.minimum(host, busy) / longer
    squared = shorter * shorter
    ahead = longer * np.sqrt(np.sqrt(1 + squared * squared)) - busy
    return np.where(rates.launches_ahead, ahead, host)


def dequantized_bytes(parameters: Floats, repeated_matmuls: Floats, per: StateBytes, stack: Stack, v: View) -> Floats:
    """A 4-bit weight is read and written out in the compute type before each use: forward, backward, and again when recomputed."""
    if per.stored >= 1.0:
        return np.zeros_like(parameters)
    moved = per.stored + 2 * per.gathered + np.where(v.compiled, 0.0, stack.unpacking_bytes)
    return (2 + repeated_matmuls) * parameters * moved


def sharding_bytes(stage: Stage, per: StateBytes, stack: Stack, v: View) -> Floats:
    """One layer's copies of one micro-batch around FSDP2's collectives: each gathered parameter out of the buffer that arrives, and
    each gradient into the one that leaves (torch/distributed/fsdp/_fully_shard: all_gather_copy_out, reduce_scatter_copy_in).
    FSDP1's flat parameters lie in such buffers."""
    if stack.memory_traits.parameters != "shards" or stack.memory_traits.flat:
        return np.zeros_like(v.tp)
    gathers = np.where(v.reshard | v.reshard_subgroup, 2.0, 1.0)
    reduced = (per.gathered + v.reduce_bytes) * (per.trained if per.frozen else 1.0) * np.where(v.no_sync, 0.0, 1.0)
    return np.where(v.fsdp_ranks > 1, stage.gathered_layer(v) * (gathers * 2 * per.gathered + reduced), 0.0)
