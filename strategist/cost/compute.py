"""Computation: seconds of one micro-batch on one rank, by part."""

import numpy as np

from strategist.contract.stack import Stack
from strategist.cost.calibration import Factors
from strategist.cost.candidate_arrays import Floats, Number
from strategist.cost.indexed_kernels import IndexedKernels
from strategist.cost.layer_flops import LayerWork
from strategist.cost.model_states import StateBytes
from strategist.cost.rates import Matmuls, Rates
from strategist.frozen import frozen

ATTENTION_BACKWARD, UNFUSED_ATTENTION_BACKWARD = 2.5, 2.0
"""FLOPs of attention's backward pass over its forward pass: flash attention computes the scores again (arXiv 2307.08691, section
4.1).
"""


@frozen
class LayerSeconds:
    """Seconds of one layer: forward pass, and backward pass with recomputation; the parts are sums over both. ``experts`` are the
    matmuls of routed experts, a part of ``matmul``.
    """

    forward: Floats
    backward: Floats
    matmul: Floats
    attention: Floats
    memory_bound: Floats
    recompute: Floats
    experts: Floats


@frozen
class LayerCompute:
    """Work of one layer and micro-batch, before calibration.

    backward_matmuls: FLOPs of matmuls in the backward pass over the forward pass: 2, or 1 if the weights are frozen.
    attention_flops, moved_bytes: of the forward pass.
    attention_backward: FLOPs of attention in the backward pass over the forward pass.
    moved_backward_bytes: of the backward pass.
    indexed: the elementwise kernels that compute addresses.
    repeated, repeated_matmuls, repeated_elementwise: recomputed shares of attention, matmuls, elementwise work.
    """

    dense: Matmuls
    experts: Matmuls
    backward_matmuls: Number
    attention_flops: Floats
    attention_backward: Number
    moved_bytes: Floats
    moved_backward_bytes: Floats
    indexed: IndexedKernels
    repeated: Floats
    repeated_matmuls: Floats
    repeated_elementwise: Floats


def layer_compute(work: LayerWork, per: StateBytes, stack: Stack, dense: Matmuls, experts: Matmuls) -> LayerCompute:
    """Work of a layer as its device executes it."""
    return LayerCompute(
        dense=dense,
        experts=experts,
        backward_matmuls=1.0 if per.frozen else 2.0,
        attention_flops=work.attention_flops,
        attention_backward=ATTENTION_BACKWARD if stack.attention == "flash" else UNFUSED_ATTENTION_BACKWARD,
        moved_bytes=work.moved_bytes + work.cast_bytes,
        moved_backward_bytes=work.moved_backward_bytes + work.cast_backward_bytes,
        indexed=work.indexed,
        repeated=work.repeated,
        repeated_matmuls=work.repeated_matmuls,
        repeated_elementwise=work.repeated_elementwise,
    )


def layer_seconds(layer: LayerCompute, rates: Rates, factors: Factors) -> LayerSeconds:
    """Seconds of one layer; the ``rates`` are calibrated already."""
    matmul = layer.dense.seconds(factors, rates.memory_rate)
    experts = np.zeros_like(matmul)
    if np.any(layer.experts.flops):
        experts = layer.experts.seconds(factors, rates.memory_rate)
        matmul = matmul + experts
    attention = layer.attention_flops / rates.attention_rate
    indexed, indexed_backward = layer.indexed.additional_seconds(rates.memory_rate, rates.indexed_values_per_second)
    elementwise = layer.moved_bytes / rates.memory_rate + indexed
    elementwise_backward = layer.moved_backward_bytes / rates.memory_rate + indexed_backward
    recompute = layer.repeated_matmuls * matmul + layer.repeated * attention + layer.repeated_elementwise * elementwise
    return LayerSeconds(
        forward=matmul + attention + elementwise,
        backward=layer.backward_matmuls * matmul + layer.attention_backward * attention + elementwise_backward + recompute,
        matmul=(1 + layer.backward_matmuls) * matmul,
        attention=(1 + layer.attention_backward) * attention,
        memory_bound=elementwise + elementwise_backward,
        recompute=recompute,
        experts=(1 + layer.backward_matmuls) * experts,
    )


def launch_seconds(host: Floats, busy: Floats, rates: Rates) -> Floats:
    """Exposed seconds of kernel launches. On a GPU the host launches ahead, so only the excess over the device's work is exposed;
    on a CPU launches use the same core.

    Kernels differ in length, so near balance some launches are late: host and device time are added in the fourth power.
    """
    longer = np.maximum(np.maximum(host, busy), 1e-30)
    shorter: Floats = np.minimum(host, busy) / longer
    squared = shorter * shorter
    exposed = longer * np.sqrt(np.sqrt(1 + squared * squared)) - busy
    return np.where(rates.launches_ahead, exposed, host)
