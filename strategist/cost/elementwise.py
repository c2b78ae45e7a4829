"""Elementwise traffic: bytes that pass through memory around the matmuls of one layer, by operation.

Eager kernels read and write memory for each operation; fused kernels (compiled, or written by hand) once for everything between two
matmuls. Counted with torch 2.11 (``TorchDispatchMode`` over the forward and backward pass of the native decoder), and compared with
kernel times on one GPU (docs/decisions/2026-11-26-parts-of-a-step.md).
"""

import numpy as np

from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import autocasts, residual_bytes, score_pairs
from strategist.cost.candidate_arrays import Floats, Mask, View
from strategist.cost.layer_widths import compute_bytes, feed_forward_width, further_readers
from strategist.cost.model_states import adapter_inputs, joined_adapter_widths, lora_parameters
from strategist.cost.stack_operations import biases_by_expert, clamps_separately, gathers_heads
from strategist.frozen import frozen

FP32_BYTES = 4.0

FUSED_SCORE_BYTES, FUSED_SCORE_BACKWARD_BYTES = 12.0, 17.0
"""Bytes moved per attention score that is written to memory, by fused kernels. Forward: out of the matmul (2), masked softmax,
which reads half of the scores (3), dropout and its mask (5), into the next matmul (2). Backward: out of one matmul and into another
(4), dropout (5), softmax (4), into two matmuls (4) (Megatron-LM, fused_kernels/scaled_upper_triang_masked_softmax.h).
"""

EAGER_SCORE_BYTES, EAGER_SCORE_BACKWARD_BYTES = 21.0, 23.0
"""The same by a kernel for each operation. Forward: out of the matmul (2), scaled (4), masked (4), softmax (4), dropout and its
mask (5), into the next matmul (2). Backward: out of one matmul and into another (4), dropout (5), softmax (6), scaling (4), into
two matmuls (4).
"""

FP32_SCORE_BYTES, FP32_SCORE_BACKWARD_BYTES = 37.0, 45.0
"""The same under autocast, or in fp32. Forward: out of the matmul (2), scaled (4), masked with an fp32 mask (6), softmax (8),
dropout (9), cast back (6), into the next matmul (2). Backward: out of one matmul and into another (4), cast (6), dropout (9),
softmax (12), cast (6), scaling (4), into two matmuls (4) (transformers, models/bert/modeling_bert.py: BertSelfAttention).
"""

NORM_BYTES, NORM_BACKWARD_BYTES = 32.0, 60.0
"""Bytes a value that a norm written in torch moves more than one kernel does (transformers, models/llama/modeling_llama.py:
LlamaRMSNorm). Forward: cast to fp32 (6), squared (8), mean (4), scaled (8), cast back (6), times the weight (4). Backward:
gradient of the product (4) and of the weight (8), cast (6), gradient of the scaling (24), of mean and square (8), their sum (12),
cast back (6)."""

ADAPTER_CASTS, WIDE_DROPOUT, DROPOUT = 12.0, 9.0, 5.0
"""Bytes a value of an adapter's input, in each pass: cast to fp32 (6) and by autocast back (6); a dropout reads and writes it, and
a mask, in fp32 (9) or half precision (5). With a 4-bit base nothing is cast under autocast, and outputs of linears are copied
(github.com/huggingface/peft 5d602fd, tuners/lora: layer.py, ``_cast_input_dtype``; bnb.py, ``requires_conversion``, ``clone``).
"""

CLAMP_BYTES, CLAMP_BACKWARD_BYTES = 8.0, 15.0
"""Bytes per value of a gated activation's input (2 bytes) that limits by kernels of their own move. Forward: both halves clamped
(4) and joined (4). Backward: comparisons and selection, 8 of the half with one limit and 14 of the other with two, and both halves
joined (4) (megatron/core/fusions/fused_bias_geglu.py: weighted_bias_quick_geglu_impl; torch 2.13, TorchDispatchMode).
"""

BIAS_BYTES, BIAS_BACKWARD_BYTES = 12.0, 16.0
"""Bytes per value of a routed token's output (2 bytes) that move where the bias of an expert's last matmul is added with the
router's weight, expert by expert. Forward: bias times weight (2), added (6), joined (4). Backward: gradients of bias and
weight, each a product (4) and its sum (2), and the joined gradient (4) (megatron/core/transformer/moe/experts.py: _apply_bias).
"""

FP32_BIAS_BYTES, FP32_BIAS_BACKWARD_BYTES = 28.0, 40.0
"""The same with weights in fp32, which DeepEP and HybridEP need (megatron/core/transformer/moe/token_dispatcher.py). Forward:
the product (4), the sum (10), joined (8), cast back (6). Backward: cast (6), cast back for the token (6), two products (16) and
their sums (8), joined (4).
"""

SLICE_PASSES = 1.5
"""Number of passes of a slice's gradient through memory. Fitted: a layer of GPT-OSS-20B takes 60 ms longer in the backward pass
on an RTX 4090 than its matmuls (pp-simulate/run.sh of arXiv 2604.27085), one pass; on an A800 two.
"""


@frozen
class OperationTraffic:
    """Bytes per token of one operation, in the forward and in the backward pass."""

    forward: Floats | float
    backward: Floats | float


@frozen
class _LayerInputs:
    """Inputs of all operations. ``residual_extra_bytes``: extra bytes per value of activations under autocast."""

    model: ModelShape
    workload: Workload
    stack: Stack
    v: View
    fused: Mask
    residual_extra_bytes: Floats

    @property
    def value_bytes(self) -> float:
        """Bytes per value of the compute type."""
        return compute_bytes(self.workload)

    @property
    def rotary_values(self) -> Floats:
        """Values of queries and keys of a token on a rank."""
        return (self.model.query_width + self.model.key_value_width / 2) / self.v.tp

    @property
    def forward_rotary_values(self) -> Floats:
        """``rotary_values`` in the forward pass, where some stacks gather all heads for their norms."""
        return self.rotary_values * np.where(gathers_heads(self.model, self.stack), self.v.tp, 1.0)


def elementwise_traffic(model: ModelShape, workload: Workload, stack: Stack, v: View) -> tuple[Floats, Floats]:
    """Bytes that one layer moves for one micro-batch on one rank, in the forward and in the backward pass."""
    c = compute_bytes(workload)
    extra = residual_bytes(stack, c, autocasts(stack, workload, v))
    fused = v.compiled | (stack.elementwise == "fused")
    layer = _LayerInputs(model=model, workload=workload, stack=stack, v=v, fused=fused, residual_extra_bytes=extra)
    operations = (
        _residual_stream,
        _sequence_copies,
        _eager_norms,
        _head_norms,
        _rotary,
        _repeated_heads,
        _activation,
        _routing,
        _expert_outputs,
        _adapters,
    )
    traffic = [operation(layer) for operation in operations]
    scores, scores_backward = _scores(layer)
    return (
        v.tokens * sum((item.forward for item in traffic), np.zeros_like(v.tp)) + scores,
        v.tokens * sum((item.backward for item in traffic), np.zeros_like(v.tp))
        + scores_backward
        + c * _expert_slice_gradients(model, stack, v),
    )


def _scores(layer: _LayerInputs) -> tuple[Floats, Floats]:
    """Bytes moved for attention scores that are written to memory, in the forward and in the backward pass, which may repeat the
    forward one.
    """
    if layer.stack.attention == "flash":
        return np.zeros_like(layer.v.tp), np.zeros_like(layer.v.tp)
    wide = (layer.residual_extra_bytes > 0) | (layer.value_bytes > 2)
    forward = np.where(layer.fused, FUSED_SCORE_BYTES, np.where(wide, FP32_SCORE_BYTES, EAGER_SCORE_BYTES))
    backward = np.where(
        layer.fused, FUSED_SCORE_BACKWARD_BYTES, np.where(wide, FP32_SCORE_BACKWARD_BYTES, EAGER_SCORE_BACKWARD_BYTES)
    )
    pairs = score_pairs(layer.model, layer.workload, layer.v)
    if layer.stack.recomputes_attention:
        backward = backward + np.where(layer.v.recompute_none, forward, 0.0)
    return forward * pairs, backward * pairs


def _residual_stream(layer: _LayerInputs) -> OperationTraffic:
    """Norms and two residual sums.

    Forward: a norm reads and writes its input; a sum reads two values and writes one. Backward: a norm reads its input and the
    gradient, both again for the gradient of its weight, and writes one value; gradients of sums are added, and eager also
    those of each further reader of a norm's output (3 passes each). Fused linears read a norm's output once. Compiled, a norm
    and the sum before it are one kernel (4 passes, backward 7); Megatron's norms stay separate
    (core/fusions/fused_bias_dropout.py). Under autocast the residual stream is in fp32, and each linear casts its input and
    the gradient of its output.
    """
    c, w = layer.value_bytes, layer.residual_extra_bytes
    extra_readers = np.where(layer.fused, 0, further_readers(layer.model))
    casts = np.where(w > 0, c + FP32_BYTES, 0.0)
    norms, norm_passes = layer.model.layer_norms, 5 if layer.workload.train == "full" else 3
    forward = (2 * norms + 4) * (c + w) + 2 * c + (2 + extra_readers) * casts
    backward = (norms * norm_passes + 6 + 3 * extra_readers) * (c + w) + (4 + extra_readers) * casts
    fused_norms = layer.fused if layer.stack.family != "megatron" else layer.v.compiled
    width = layer.model.hidden_size / layer.v.activation_shards
    return OperationTraffic(
        forward=width * np.where(fused_norms, 8 * c + 4 * w, forward),
        backward=width * np.where(fused_norms, 14 * c + 6 * w, backward),
    )


def _sequence_copies(layer: _LayerInputs) -> OperationTraffic:
    """Copies of gathered and of scattered sequences: torch's collectives join and split the first dimension, which is the batch,
    except that a batch of one is gathered as a view (torch.distributed._functional_collectives: all_gather_tensor,
    reduce_scatter_tensor). Each region of a layer gathers and scatters once in each pass.
    """
    v, model = layer.v, layer.model
    regions = 2 - np.where(v.etp == 1, model.moe_layers / model.layers, 0.0)  # attention, and a feed-forward that tp splits
    passes = np.where(v.sequence_parallel & (layer.stack.family == "torch"), np.where(v.micro_batch > 1, 4.0, 2.0), 0.0)
    copied = layer.value_bytes * passes * regions * model.hidden_size
    return OperationTraffic(forward=copied, backward=copied)


def _eager_norms(layer: _LayerInputs) -> OperationTraffic:
    """Additional bytes of norms written in torch, which pass over their input once per operation."""
    width = layer.model.layer_norms * layer.model.hidden_size / layer.v.activation_shards
    qk = layer.rotary_values if layer.model.qk_norm else 0.0
    values = np.where(~layer.fused & _has_eager_norms(layer), width + qk, 0.0)
    return OperationTraffic(forward=NORM_BYTES * values, backward=NORM_BACKWARD_BYTES * values)


def _has_eager_norms(layer: _LayerInputs) -> bool:
    return layer.model.norm == "rms" and layer.stack.memory_traits.norm_bytes > 2


def _head_norms(layer: _LayerInputs) -> OperationTraffic:
    """Norms of queries and keys."""
    if not layer.model.qk_norm:
        return OperationTraffic(forward=0.0, backward=0.0)
    return OperationTraffic(forward=4 * layer.forward_rotary_values, backward=6 * layer.rotary_values)


def _rotary(layer: _LayerInputs) -> OperationTraffic:
    """Rotary positions of queries and keys; fused kernels read and write them once."""
    if layer.model.learned_positions:
        return OperationTraffic(forward=0.0, backward=0.0)
    each = layer.value_bytes / 2 * np.where(layer.fused, 4.0, layer.stack.rotary_bytes)
    return OperationTraffic(forward=each * layer.forward_rotary_values, backward=each * layer.rotary_values)


def _repeated_heads(layer: _LayerInputs) -> OperationTraffic:
    """Keys and values repeated for all query heads, and the sums of their gradients."""
    model = layer.model
    if not layer.stack.memory_traits.repeats_heads or model.mla or model.key_value_width >= 2 * model.query_width:
        return OperationTraffic(forward=0.0, backward=0.0)
    copied_bytes = layer.value_bytes * (2 * model.query_width + model.key_value_width) / layer.v.tp
    return OperationTraffic(forward=copied_bytes, backward=copied_bytes)


def _activation(layer: _LayerInputs) -> OperationTraffic:
    """Passes over the inner width. Gated, eager: activation (2) and product (3), backward 6 and 3; fused 3 and 5. A single
    activation: 2 and 3.
    """
    gated = layer.model.ffn_matrices == 3
    inner = layer.value_bytes * feed_forward_width(layer.model)[0] / layer.v.tp
    forward, backward = (np.where(layer.fused, 3.0, 5.0), np.where(layer.fused, 5.0, 9.0)) if gated else (2.0, 3.0)
    if not clamps_separately(layer.model, layer.stack):
        return OperationTraffic(forward=forward * inner, backward=backward * inner)
    clamped_values = 2 * inner / layer.value_bytes
    return OperationTraffic(
        forward=forward * inner + CLAMP_BYTES * clamped_values, backward=backward * inner + CLAMP_BACKWARD_BYTES * clamped_values
    )


def _routing(layer: _LayerInputs) -> OperationTraffic:
    """Tokens copied to their experts and back with their weights; under autocast each expert's first matmuls cast them. Where
    Megatron sends a token for each of its experts, a rank with several experts also sorts by them what it received, and before
    the way back again (megatron/core/transformer/moe/token_dispatcher.py: MoEAlltoAllTokenDispatcher, ``sort_chunks_by_idxs``).
    """
    c, w = layer.value_bytes, layer.residual_extra_bytes
    routed_values = feed_forward_width(layer.model)[1] * layer.model.hidden_size
    casts = np.where(w > 0, (layer.model.ffn_matrices - 1) * (c + FP32_BYTES), 0.0)
    experts = layer.model.moe.experts if layer.model.moe else 1
    sorts = layer.stack.family == "megatron" and layer.stack.dispatch == "choices"
    casts = casts + np.where(sorts & (layer.v.ep > 1) & (layer.v.ep < experts), 4 * c, 0.0)
    backward = np.where(layer.fused, 4, 8) * (c + w) + casts
    return OperationTraffic(forward=routed_values * (4 * (c + w) + casts), backward=routed_values * backward)


def _expert_outputs(layer: _LayerInputs) -> OperationTraffic:
    """Biases of the experts' last matmuls, where each expert adds its own."""
    if not biases_by_expert(layer.model, layer.stack):
        return OperationTraffic(forward=0.0, backward=0.0)
    values = feed_forward_width(layer.model)[1] * layer.model.hidden_size
    if layer.stack.dispatch == "ranks":
        return OperationTraffic(forward=FP32_BIAS_BYTES * values, backward=FP32_BIAS_BACKWARD_BYTES * values)
    return OperationTraffic(forward=BIAS_BYTES * values, backward=BIAS_BACKWARD_BYTES * values)


def _adapters(layer: _LayerInputs) -> OperationTraffic:
    """Outputs of low-rank adapters added to those of their linears, and gradients of their inputs: 3 passes, fused one. PEFT also
    scales outputs and prepares inputs, and copies outputs of 4-bit linears in the forward pass.
    """
    if layer.workload.train == "full":
        return OperationTraffic(forward=0.0, backward=0.0)
    if layer.stack.family == "megatron":
        return _parallel_adapters(layer)
    c, tp = layer.value_bytes, layer.v.tp
    adapter_widths = lora_parameters(layer.model, 1, layer.stack.adapters) / layer.model.layers / tp
    added_bytes = c * np.where(layer.fused, 1.0, 3.0) * adapter_widths / 2
    if not layer.stack.casts_adapters:
        return OperationTraffic(forward=added_bytes, backward=added_bytes)
    input_widths = adapter_inputs(layer.model, layer.stack.adapters) / tp
    quantized = layer.workload.train == "qlora"
    output_bytes = np.where(layer.fused, 0.0, 2 * c * (adapter_widths - input_widths))  # outputs, read and written once
    added_bytes = (
        added_bytes + output_bytes + np.where(layer.fused, c, DROPOUT if quantized else ADAPTER_CASTS + WIDE_DROPOUT) * input_widths
    )
    return OperationTraffic(forward=added_bytes + output_bytes * quantized, backward=added_bytes)


def _parallel_adapters(layer: _LayerInputs) -> OperationTraffic:
    """Adapters of Megatron's linears, kernel by kernel (megatron/bridge/peft: utils.py, ``ParallelLinearAdapter``; lora_layers.py,
    ``LoRALinear``; the same in NeMo).

    Forward, of each input: a dropout reads it and writes it with a mask (2 passes and a byte), the first matmul reads it (1); of
    each output: the second matmul writes it (1), it is scaled (2) and added (3). Backward, of each output: its gradient is scaled
    (2), two matmuls read that (2); of each input: a matmul reads it (1), its gradient is written (1), goes through the dropout (2
    and a byte) and is added (3).
    """
    c, widths = layer.value_bytes, joined_adapter_widths(layer.model, layer.stack.adapters)
    inputs, outputs = widths.gathered + widths.split / layer.v.tp, widths.outputs / layer.v.tp
    return OperationTraffic(
        forward=(3 * c + 1) * inputs + 6 * c * outputs,
        backward=(7 * c + 1) * inputs + 4 * c * outputs,
    )


def _expert_slice_gradients(model: ModelShape, stack: Stack, v: View) -> Floats:
    """Numbers written in the backward pass of a layer whose experts are slices of one parameter, in a loop: the gradient of each
    slice is as large as the parameter, nearly all of it zeros."""
    if model.moe is None or stack.experts != "sliced":
        return np.zeros_like(v.tp)
    local_experts = model.moe.experts / v.ep
    return SLICE_PASSES * local_experts * local_experts * model.expert_parameters / v.etp * model.moe_layers / model.layers
