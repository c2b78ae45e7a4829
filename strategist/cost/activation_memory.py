"""Activation memory: bytes saved for the backward pass, of one micro-batch and of all micro-batches in flight."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.model import ModelShape
from strategist.contract.pipeline_stages import RESIDENT_LAYERS
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, Mask, View
from strategist.cost.layer_widths import compute_bytes, feed_forward_width, further_readers, shared_matmuls
from strategist.cost.model_states import Stage

FLOAT8_SAVED_BYTES = 4.0
"""Bytes saved per input value of an uncompiled float8 matmul: its product with the scale, in fp32. Without a compiler an 8B with
8,192 tokens takes 34 GiB more on 8 H100 (torchtitan's commits); this formula gives 38.
"""

UNFUSED_SAVED_BYTES = 5.0
"""Bytes saved per attention score that is written to memory: softmax, dropout and its mask (arXiv 2205.05198, section 4.1)."""


@dataclass(frozen=True, kw_only=True)
class LayerActivations:
    """Bytes of activations of one layer, for one micro-batch on one rank.

    autograd_bytes: saved by autograd without recomputation.
    selective_bytes: saved by selective recomputation: outputs of matmuls and attention.
    input_bytes: the layer's input.
    saved_bytes: saved by the candidate from the forward to the backward pass.
    recomputed_bytes: recomputed before the layer's backward pass.
    weight_pass_bytes: left over from recomputing the layer for the gradient of each weight (zero-bubble schedules).
    cached_bytes: keys and values returned with the model's output.
    feed_forward_backward_bytes: most that gradients add during the backward pass of the feed-forward, beyond all that is saved.
    attention_backward_bytes: whole layer once only the backward pass of attention remains.
    """

    autograd_bytes: Floats
    selective_bytes: Floats
    input_bytes: Floats
    saved_bytes: Floats
    recomputed_bytes: Floats
    weight_pass_bytes: Floats
    cached_bytes: Floats
    feed_forward_backward_bytes: Floats
    attention_backward_bytes: Floats


def layer_activations(model: ModelShape, workload: Workload, stack: Stack, v: View) -> LayerActivations:
    """Activation bytes follow arXiv 2205.05198, section 4.1, for gated feed-forwards and flash attention.

    Saved a token: inputs of queries, keys, values and of the feed-forward (2 h, with experts 2 more for each that a token visits:
    its input and, where the router's weights multiply it, its output), queries, attention's output, keys and values, the inner
    tensors, norms' inputs, of queries and keys, too, where they have norms. Sequence parallelism splits norms' inputs and outputs,
    but a linear keeps its gathered input for its weight gradient. torch's ring attention saves its merged output beside the one
    that is projected.
    """
    c, traits, t = compute_bytes(workload), stack.memory_traits, v.tokens
    h, q, o, kv = model.hidden_size, model.query_width, model.attended_width, model.key_value_width
    inner, routed = feed_forward_width(model)
    shards = v.activation_shards
    gathered = shards if traits.regathers else np.ones_like(shards)
    fused = v.compiled | (stack.elementwise == "fused")
    inner_tensors = np.where(fused, model.ffn_matrices, 2 * model.ffn_matrices - 2)  # into the activation, out of it, their product
    full = workload.train == "full"
    quantized = v.float8 if traits.quantized_inputs and full else np.zeros_like(fused)
    attended_kv = 2 * q if traits.repeats_heads else kv
    norm_bytes = np.where(fused, 2.0, traits.norm_bytes) if traits.norm_bytes > 2 else 2.0
    normed = norm_bytes / 2 * (q + kv / 2) if model.qk_norm else 0.0
    merged = np.where(v.cp > 1, o, 0.0) if stack.ring_gradients == "fp32" else 0.0
    tiles = np.maximum(t / stack.tile_tokens, 1.0) if stack.tile_tokens else np.ones_like(t)
    inner_saved = inner_tensors * inner * np.where((tiles > 1) & stack.tiles_recompute, 0.0, 1.0)
    made = (q + o + attended_kv + normed + merged + inner_saved) / v.tp
    visits = 2 * routed if traits.expert_outputs else routed
    kept = (2 + visits) * h / gathered + made
    if stack.adapters != "all" and (workload.train == "lora" or (workload.train == "qlora" and not traits.quantized_matmul_inputs)):
        kept = kept - _read_by_frozen(model, gathered, v, tiles)
    norms = (norm_bytes + (traits.dropout_bytes / 2 if model.norm == "layer" else 0.0)) * h / shards
    summed = 2 * h / gathered  # outputs of matmuls whose ranks' sums are saved, too
    outputs = summed + (q + kv + (model.ffn_matrices - 1) * inner) / v.tp
    arrived = np.where(v.tp > 1, 2 * h / shards, 0.0) + np.where(v.ep > 1, 2 * routed * h / gathered, 0.0)
    saved = h / shards + q / v.tp + traits.selective_matmuls * v.saved_matmuls * outputs + v.saved_collectives * arrived
    saved = np.minimum(saved, kept + norms)
    scores = 0.0 if stack.attention == "flash" else UNFUSED_SAVED_BYTES
    autocast = autocasts(stack, workload, v)
    wider, copied = residual_bytes(stack, c, autocast), np.where(autocast & ~fused, _casts(model, stack), 0.0)
    eager = v.float8 & ~fused & (not traits.quantized_inputs)
    scaled = np.where(eager, FLOAT8_SAVED_BYTES * ((shared_matmuls(model) - 2) * h / gathered + (o + inner) / v.tp), 0.0)
    logsumexp = 4 * model.heads / v.tp
    whole = t * (c * (kept + norms + copied * h) + 2 * wider * h + logsumexp + scaled) + scores * score_pairs(model, workload, v)
    whole = whole - np.where(quantized, t * _saved_by_quantizing(c, 2 + routed, model, gathered, v), 0.0)
    if traits.float8_activations:
        whole = whole - np.where(v.float8, t * (c - 1) * (model.ffn_matrices - 1) * inner / v.tp, 0.0)
    selective = np.minimum(t * (c * saved + wider * h + logsumexp + scaled), whole)
    inputs = (c + wider) * t * h / shards
    last_output = c * t * traits.selective_matmuls * v.saved_matmuls * h / gathered
    saved_bytes, recomputed = _recomputed(whole, selective, inputs, last_output, v)
    each_weight = v.zero_bubble & (v.recompute_full | v.recompute_every_second)
    return LayerActivations(
        autograd_bytes=whole,
        selective_bytes=selective,
        input_bytes=inputs,
        saved_bytes=saved_bytes,
        recomputed_bytes=recomputed,
        weight_pass_bytes=np.where(each_weight, (5 + model.ffn_matrices) * c * t * made, 0.0),
        cached_bytes=c * t * kv / v.tp if traits.caches_keys else np.zeros_like(t),
        feed_forward_backward_bytes=_feed_forward_backward(model, workload, stack, inner_tensors, v, tiles),
        attention_backward_bytes=_attention_backward(model, workload, stack, fused, v),
    )


def _saved_by_quantizing(c: float, inputs: float, model: ModelShape, gathered: Floats, v: View) -> Floats:
    """Bytes per token that a layer saves less if matmuls save their input in float8: ``inputs`` of the hidden size, and that of
    the last feed-forward matmul. The input of the output projection is an additional copy of the attention output
    (Transformer Engine, ``pytorch/module/linear.py``: ``inputmat`` keeps only its column-wise quantized data).
    """
    inner, _ = feed_forward_width(model)
    saved: Floats = (c - 1) * (inputs * model.hidden_size / gathered + inner / v.tp) - model.attended_width / v.tp
    return saved


def _read_by_frozen(model: ModelShape, gathered: Floats, v: View, tiles: Floats) -> Floats:
    """Values per token that only frozen weights of the feed-forward read: the input of its first matmuls and of its last one. A
    frozen weight has no gradient, so autograd does not save its input unless an adapter reads the same one.
    """
    inner, _ = feed_forward_width(model)
    read: Floats = model.hidden_size / gathered + np.where(tiles > 1, 0.0, inner / v.tp)
    return read


def score_pairs(model: ModelShape, workload: Workload, v: View) -> Floats:
    """Number of attention scores of one layer and micro-batch on one rank."""
    return v.tokens * model.heads * workload.seq_len / (v.tp * v.cp)


def autocasts(stack: Stack, workload: Workload, v: View) -> Mask:
    """Whether parameters are in fp32 when a layer computes, so that autocast casts them at each matmul."""
    if not stack.memory_traits.autocast:
        return v.autocast
    half: Mask = np.full(v.tp.shape, workload.precision not in ("fp32", "bf16-true"))
    return half


def residual_bytes(stack: Stack, c: float, autocast: Mask) -> Floats:
    """Extra bytes per value of the residual stream over the compute type: autocast leaves it in fp32."""
    return np.where(autocast, 4 - c, 0.0) if stack.memory_traits.parameters == "shards" else np.zeros(autocast.shape)


def _casts(model: ModelShape, stack: Stack) -> float:
    """Number of extra copies of a norm's output under autocast: each linear that reads it casts it separately."""
    return float(further_readers(model)) if stack.memory_traits.parameters == "shards" else 0.0


def _recomputed(whole: Floats, selective: Floats, inputs: Floats, last_output: Floats, v: View) -> tuple[Floats, Floats]:
    """Bytes saved, and bytes recomputed.

    Selective recomputation also recomputes the layer's last output, although nothing needs it. The compiler's memory budget saves
    that share of the difference between the inputs and everything (measured: 1082, 694, 406 and 244 KiB with budgets of 1, 0.5, 0.2
    and 0 on a small block).
    """
    full = v.recompute_full | v.recompute_every_second
    saved = np.where(full, inputs, np.where(v.recompute_selective, selective, whole))
    again = whole - saved + np.where(v.recompute_selective, last_output, 0.0)
    saved = np.where(v.recompute_every_second, (whole + inputs) / 2, saved)
    if v.recompute_budget.any():
        left = inputs + v.budget * (whole - inputs)
        saved, again = np.where(v.recompute_budget, left, saved), np.where(v.recompute_budget, whole - left, again)
    return saved, again


def _feed_forward_backward(model: ModelShape, workload: Workload, stack: Stack, kept: Floats, v: View, tiles: Floats) -> Floats:
    """Bytes that gradients take at most as a feed-forward goes back, beyond all that the layer keeps: of its output, of the
    ``kept`` inner tensors and of weights, at the fullest of three moments. Sequence parallelism gathers the output's gradient
    first, beside a copy where rows are cut apart.

    The last matmul has gone back: the gathered gradient is there yet, that of its input and of its weight are new. Then the product
    is gone, and each matmul before it has a gradient to begin with. At last all inner tensors but the last of these are gone, and
    each of those matmuls has made the gradient of the whole input. In tiles, those of one tile live at once, and where tiles are
    made again, what one of them saves, too.
    """
    c = compute_bytes(workload)
    inner, routed = feed_forward_width(model)
    whole, each = c * v.tokens * model.hidden_size, c * v.tokens * inner / v.tp / tiles
    arrives = (c + residual_bytes(stack, c, autocasts(stack, workload, v))) * v.tokens * model.hidden_size / v.activation_shards
    again = np.where((tiles > 1) & stack.tiles_recompute, kept * each, 0.0)
    if routed or stack.memory_traits.regathers:
        return again + 2 * (whole + each) + _regathered(whole, stack, v)
    gathered, before = np.where(v.activation_shards > 1, whole, 0.0), model.ffn_matrices - 1
    weight = c * model.hidden_size * inner / v.tp if workload.train == "full" else 0.0
    made_again = v.recompute_full | v.recompute_selective | v.recompute_budget | v.recompute_every_second
    copied = np.where((v.micro_batch > 1) & ~made_again, gathered, 0.0)
    last = gathered + np.maximum(each + weight, copied)
    inputs = before * whole + (1 - kept) * each + (before + 1) * weight
    fullest: Floats = np.maximum(np.maximum(last, before * each + weight), inputs)
    return again + arrives + fullest


def _attention_backward(model: ModelShape, workload: Workload, stack: Stack, fused: Mask, v: View) -> Floats:
    """Bytes of a layer of which only attention is left: its input, whole that of the matmuls, the residual's gradient, and the most
    of three moments. Attention itself has all that it keeps and the gradients of it, between context-parallel ranks what its ring
    takes; then rotary positions, where no compiler has made one kernel of them, have those of queries in fp32 and as much in halves
    twice; and at last each of the three matmuls has made the gradient of its input, those of the first two with their sum."""
    c = compute_bytes(workload)
    h, q, o, kv = model.hidden_size, model.query_width, model.attended_width, model.key_value_width
    whole, widths = c * v.tokens * h, 2 * c * (q + o + kv)
    if stack.memory_traits.regathers:
        return v.tokens * (2 * c * h / v.activation_shards + widths / v.tp) + _regathered(whole, stack, v)
    turned = 12.0 * q + c * kv if model.rotary_size and model.mla is None else 0.0
    shared = v.tokens * np.where(fused, widths, max(widths, turned)) / v.tp
    if stack.ring_gradients == "fp32" and (v.cp > 1).any():
        shared = np.where(v.cp > 1, np.maximum(shared, v.tokens * _ring_backward(c, q, o, kv, v) / v.tp), shared)
    fullest: Floats = np.maximum(shared, 3 * whole + c * v.tokens * q / v.tp)
    return 2 * whole / v.activation_shards + whole + fullest


def _ring_backward(c: float, q: int, o: int, kv: int, v: View) -> Floats:
    """Bytes a token at the fullest moment of torch's ring attention as it goes back
    (torch/distributed/tensor/experimental/_context_parallel/_attention.py: ``_templated_ring_attention_backward``).

    Saved queries, keys, values and output twice, and the output's gradient; gradients of queries in fp32 beside those that are
    updated; of keys and values in fp32 as they are added, sent and received; of the kernel those of half the queries and of all
    keys and values; keys and values that are sent, and those that were gathered of all ranks.
    """
    return c * (q + 2 * o + kv) + 8 * q + 12 * kv + c * (q / 2 + kv) + c * kv * (1 + v.cp)


def _regathered(whole: Floats, stack: Stack, v: View) -> Floats:
    """Bytes of inputs and outputs of tensor-parallel regions, for stacks whose live tensors are not known in detail."""
    return whole * np.where(v.tp > 1, 3.0 if stack.memory_traits.regathers else 1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class StageActivations:
    """Bytes of activations that a device holds for one pipeline stage.

    in_flight_bytes: all micro-batches in flight, with the outputs that await their gradients.
    micro_batch_bytes: one micro-batch, all layers.
    after_first_bytes: all in flight once the backward pass of one micro-batch has reached the first layer of a stage.
    last_stage_alone_bytes: when the last of stages that run one by one begins the backward pass of its second micro-batch.
    layer_bytes, last_layer_bytes, first_layer_bytes: one layer: the average, and those at both ends.
    output_bytes: a stage's output that is kept.
    weight_pass_bytes: one stage, if it is recomputed for the gradient of each weight.
    """

    in_flight_bytes: Floats
    micro_batch_bytes: Floats
    after_first_bytes: Floats
    last_stage_alone_bytes: Floats
    layer_bytes: Floats
    last_layer_bytes: Floats
    first_layer_bytes: Floats
    output_bytes: Floats
    weight_pass_bytes: Floats


def stage_activations(stage: Stage, layer: LayerActivations, v: View, traits: MemoryTraits) -> StageActivations:
    """Activations of a stage. torch keeps the outputs of pipeline stages until their gradients arrive
    (``PipelineStage.fwd_cache``), and if a rank has several stages, one input and one gradient arrive ahead.
    """
    each = np.where(
        v.recompute_every_second,
        layer.autograd_bytes - stage.recomputed_share * (layer.autograd_bytes - layer.input_bytes),
        layer.saved_bytes,
    )
    whole = stage.layers * each
    away = np.minimum(traits.layers_away / np.maximum(stage.layers, 1.0), 1.0)
    saved = _on_device(stage.in_flight * whole * (1 - away), layer, v)
    passed = stage.outputs + np.where(v.looped & ~v.sequential_backward, 2.0, 0.0) if traits.holds_outputs else np.zeros_like(v.tp)
    passed = np.where(v.streamed, 0.0, passed * layer.input_bytes) + stage.in_flight * stage.layers * layer.cached_bytes
    turn = whole / np.where(v.sequential_backward, v.virtual_stages, 1.0)
    first = np.minimum(whole, np.where(v.recompute_every_second, layer.input_bytes, layer.saved_bytes))
    last = np.minimum(
        whole, np.where(v.recompute_every_second & (stage.recomputed_share < 1), layer.autograd_bytes, layer.saved_bytes)
    )
    others = np.where(v.activations_away, saved, saved - turn + first)
    alone = (saved + passed) / v.virtual_stages - np.where(v.activations_away, 0.0, turn)
    again = np.where(v.recompute_every_second, stage.recomputed_share, 1.0) * stage.layers / v.virtual_stages
    return StageActivations(
        in_flight_bytes=saved + passed,
        micro_batch_bytes=np.where(v.activations_away, 0.0, whole),
        after_first_bytes=others + passed,
        last_stage_alone_bytes=alone,
        layer_bytes=np.where(v.activations_away, 0.0, each),
        last_layer_bytes=np.where(v.activations_away, 0.0, last),
        first_layer_bytes=np.where(v.activations_away, 0.0, first),
        output_bytes=np.where(stage.outputs > 0, layer.input_bytes, 0.0) if traits.holds_outputs else np.zeros_like(v.tp),
        weight_pass_bytes=np.where(layer.weight_pass_bytes > 0, again * (layer.recomputed_bytes + layer.weight_pass_bytes), 0.0),
    )


def _on_device(saved: Floats, layer: LayerActivations, v: View) -> Floats:
    """The part of ``saved`` that stays on the device: everything, or with activation offload a window of layers (of two pairs if
    every second layer is recomputed).
    """
    window = np.where(v.recompute_every_second, RESIDENT_LAYERS + 1, RESIDENT_LAYERS) * layer.saved_bytes
    return np.where(v.activations_away, np.minimum(saved, window), saved)
