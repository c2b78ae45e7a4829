"""Indexed kernels: elementwise kernels of torch that compute the address of each value, because an operand is broadcast or strided.

They vectorize no loads, and on devices with fast memory instructions limit them, not bytes. Counted with torch 2.13
(TorchDispatchMode) where Megatron-Core runs them; what other stacks run of them is in their bytes alone.
"""

import numpy as np

from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.cost.candidate_arrays import Floats, Number, View
from strategist.cost.layer_widths import feed_forward_width
from strategist.cost.stack_operations import biases_by_expert, clamps_separately
from strategist.frozen import frozen

CLAMPED, CLAMPED_BACKWARD = (2.0, 8.0), (5.0, 19.0)
"""Kernels that each value of a gated activation's output takes where halves of its input are clamped in place of the joined input,
and bytes that they move. Forward: each half clamped (4 bytes). Backward: comparisons (3) and selections (5), one comparison of
the half with one limit, two of the other (megatron/core/fusions/fused_bias_geglu.py: weighted_bias_quick_geglu_impl).
"""

BIASED, BIASED_BACKWARD = (1.0, 2.0), (2.0, 8.0)
"""The same of each value of a routed token's output to which an expert's bias is added: bias times weight (2 bytes); backward the
gradient times weight and times bias (4 each) (megatron/core/transformer/moe/experts.py: _apply_bias).
"""

FP32_BIASED, FP32_BIASED_BACKWARD = (1.0, 4.0), (2.0, 16.0)
"""The same with weights in fp32."""


@frozen
class IndexedKernels:
    """Indexed kernels of one layer and micro-batch on a rank: values that they write, and bytes that they move, which are a part of
    the layer's elementwise traffic.
    """

    values: Floats
    moved_bytes: Floats
    backward_values: Floats
    backward_bytes: Floats

    def additional_seconds(self, memory_rate: Number, values_per_second: Number) -> tuple[Floats, Floats]:
        """Seconds by which the kernels of the forward and of the backward pass take longer than their bytes."""
        forward = np.maximum(self.values / values_per_second - self.moved_bytes / memory_rate, 0.0)
        backward = np.maximum(self.backward_values / values_per_second - self.backward_bytes / memory_rate, 0.0)
        return forward, backward


def indexed_kernels(model: ModelShape, stack: Stack, v: View) -> IndexedKernels:
    """The indexed kernels of a layer."""
    inner, routed = feed_forward_width(model)
    clamped = v.tokens * inner / v.tp * clamps_separately(model, stack)
    biased = v.tokens * routed * model.hidden_size * biases_by_expert(model, stack)
    wide = stack.dispatch == "ranks"
    bias, bias_backward = (FP32_BIASED, FP32_BIASED_BACKWARD) if wide else (BIASED, BIASED_BACKWARD)
    return IndexedKernels(
        values=CLAMPED[0] * clamped + bias[0] * biased,
        moved_bytes=CLAMPED[1] * clamped + bias[1] * biased,
        backward_values=CLAMPED_BACKWARD[0] * clamped + bias_backward[0] * biased,
        backward_bytes=CLAMPED_BACKWARD[1] * clamped + bias_backward[1] * biased,
    )
