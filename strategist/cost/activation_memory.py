"""Activation memory: bytes saved for the backward pass, of one micro-batch and of all micro-batches in flight."""

import numpy as np

from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.model import ModelShape
from strategist.contract.pipeline_stages import RESIDENT_LAYERS
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, Mask, View
from strategist.cost.layer_widths import compute_bytes, expert_width, feed_forward_width, further_readers, shared_matmuls
from strategist.cost.model_states import Stage
from strategist.cost.stack_operations import clamps_separately
from strategist.frozen import frozen

FLOAT8_SAVED_BYTES = 4.0
"""Bytes saved per input value of an uncompiled float8 matmul: its product with the scale, in fp32. Without a compiler an 8B with
8,192 tokens takes 34 GiB more on 8 H100 (torchtitan's commits); this formula gives 38.
"""

UNFUSED_SAVED_BYTES = 5.0
"""Bytes saved per attention score that is written to memory: softmax, dropout and its mask (arXiv 2205.05198, section 4.1)."""


@frozen
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
    but a linear keeps its gathered input for its weight gradient. torch's ring attention saves its merged output in addition to
    the one that is projected.
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
    if clamps_separately(model, stack):
        inner_tensors = inner_tensors + 2.0
    inner_saved = inner_tensors * inner * np.where((tiles > 1) & stack.tiles_recompute, 0.0, 1.0)
    sharded_values = (q + o + attended_kv + normed + merged + inner_saved) / v.tp
    expert_tensors = 2 * routed if traits.expert_outputs else routed
    saved_values = (2 + expert_tensors) * h / gathered + sharded_values
    if stack.adapters != "all" and (workload.train == "lora" or (workload.train == "qlora" and not traits.quantized_matmul_inputs)):
        saved_values = saved_values - _inputs_of_frozen_weights(model, gathered, v, tiles)
    norms = (norm_bytes / 2 * model.layer_norms + (traits.dropout_bytes / 2 if model.norm == "layer" else 0.0)) * h / shards
    reduced_outputs = 2 * h / gathered  # outputs of matmuls whose ranks' sums are saved, too
    saved_inner = inner if traits.saves_experts else inner - expert_width(model)
    outputs = reduced_outputs + (q + kv + (model.ffn_matrices - 1) * saved_inner) / v.tp
    collective_outputs = np.where(v.tp > 1, 2 * h / shards, 0.0) + np.where(v.ep > 1, 2 * routed * h / gathered, 0.0)
    selective_values = (
        h / shards + q / v.tp + traits.selective_matmuls * v.saved_matmuls * outputs + v.saved_collectives * collective_outputs
    )
    selective_values = np.minimum(selective_values, saved_values + norms)
    scores = 0.0 if stack.attention == "flash" else UNFUSED_SAVED_BYTES
    saved_scores = 0.0 if stack.recomputes_attention else scores
    autocast = autocasts(stack, workload, v)
    residual_extra, cast_copies = residual_bytes(stack, c, autocast), np.where(autocast & ~fused, _cast_copies(model, stack), 0.0)
    eager_float8 = v.float8 & ~fused & (not traits.quantized_inputs)
    float8_products = np.where(
        eager_float8, FLOAT8_SAVED_BYTES * ((shared_matmuls(model) - 2) * h / gathered + (o + inner) / v.tp), 0.0
    )
    logsumexp = 4 * model.heads / v.tp
    autograd = t * (
        c * (saved_values + norms + cast_copies * h) + 2 * residual_extra * h + logsumexp + float8_products
    ) + saved_scores * score_pairs(model, workload, v)
    autograd = autograd + c * _mask_values(model, workload, stack, v)
    autograd = autograd - np.where(quantized, t * _saving_of_quantizing(c, 2 + routed, model, gathered, v), 0.0)
    if traits.float8_activations:
        autograd = autograd - np.where(v.float8, t * (c - 1) * (model.ffn_matrices - 1) * inner / v.tp, 0.0)
    selective = np.minimum(t * (c * selective_values + residual_extra * h + logsumexp + float8_products), autograd)
    inputs = (c + residual_extra) * t * h / shards
    last_output = c * t * traits.selective_matmuls * v.saved_matmuls * h / gathered
    saved_bytes, recomputed = _saved_and_recomputed_bytes(autograd, selective, inputs, last_output, v)
    if scores > saved_scores:
        recomputed = recomputed + (scores - saved_scores) * score_pairs(model, workload, v)
    recomputed_per_weight = v.zero_bubble & (v.recompute_full | v.recompute_every_second)
    return LayerActivations(
        autograd_bytes=autograd,
        selective_bytes=selective,
        input_bytes=inputs,
        saved_bytes=saved_bytes,
        recomputed_bytes=recomputed,
        weight_pass_bytes=np.where(recomputed_per_weight, (5 + model.ffn_matrices) * c * t * sharded_values, 0.0),
        cached_bytes=c * t * kv / v.tp if traits.caches_keys else np.zeros_like(t),
        feed_forward_backward_bytes=_feed_forward_backward(model, workload, stack, inner_tensors, v, tiles),
        attention_backward_bytes=_attention_backward(model, workload, stack, fused, v),
    )


def _saving_of_quantizing(c: float, inputs: float, model: ModelShape, gathered: Floats, v: View) -> Floats:
    """Bytes per token that a layer saves less if matmuls save their input in float8: ``inputs`` of the hidden size, and that of
    the last feed-forward matmul. The input of the output projection is an additional copy of the attention output
    (Transformer Engine, ``pytorch/module/linear.py``: ``inputmat`` keeps only its column-wise quantized data).
    """
    inner, _ = feed_forward_width(model)
    saving: Floats = (c - 1) * (inputs * model.hidden_size / gathered + inner / v.tp) - model.attended_width / v.tp
    return saving


def _inputs_of_frozen_weights(model: ModelShape, gathered: Floats, v: View, tiles: Floats) -> Floats:
    """Values per token that only frozen weights of the feed-forward read: the input of its first matmuls and of its last one. A
    frozen weight has no gradient, so autograd does not save its input unless an adapter reads the same one.
    """
    inner, _ = feed_forward_width(model)
    read: Floats = model.hidden_size / gathered + np.where(tiles > 1, 0.0, inner / v.tp)
    return read


def _mask_values(model: ModelShape, workload: Workload, stack: Stack, v: View) -> Floats:
    """Values of the masks that attention saves, mean over layers: where windows are masks, each windowed layer adds its own to the
    scores, one value for each pair of a sequence (torch, aten/src/ATen/native/transformers/attention.cpp:
    convert_attn_func_mask; torch 2.13 saves one for each call).
    """
    if stack.attention == "unfused" or stack.windows != "masked":
        return np.zeros_like(v.tp)
    masked_layers = sum(layers for window, layers in model.windows.items() if 0 < window < workload.seq_len)
    return v.micro_batch * workload.seq_len**2 * masked_layers / model.layers


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


def _cast_copies(model: ModelShape, stack: Stack) -> float:
    """Number of extra copies of a norm's output under autocast: each linear that reads it casts it separately."""
    return float(further_readers(model)) if stack.memory_traits.parameters == "shards" else 0.0


def _saved_and_recomputed_bytes(
    autograd: Floats, selective: Floats, inputs: Floats, last_output: Floats, v: View
) -> tuple[Floats, Floats]:
    """Bytes saved, and bytes recomputed.

    Selective recomputation also recomputes the layer's last output, although nothing needs it. The compiler's memory budget saves
    that share of the difference between the inputs and everything (measured: 1082, 694, 406 and 244 KiB with budgets of 1, 0.5, 0.2
    and 0 on a small block).
    """
    full = v.recompute_full | v.recompute_every_second
    saved = np.where(full, inputs, np.where(v.recompute_selective, selective, autograd))
    recomputed = autograd - saved + np.where(v.recompute_selective, last_output, 0.0)
    saved = np.where(v.recompute_every_second, (autograd + inputs) / 2, saved)
    if v.recompute_budget.any():
        within_budget = inputs + v.budget * (autograd - inputs)
        saved, recomputed = (
            np.where(v.recompute_budget, within_budget, saved),
            np.where(v.recompute_budget, autograd - within_budget, recomputed),
        )
    return saved, recomputed


def _feed_forward_backward(
    model: ModelShape, workload: Workload, stack: Stack, inner_tensors: Floats, v: View, tiles: Floats
) -> Floats:
    """Maximum bytes of gradients during the backward pass of a feed-forward, beyond all that the layer saved: of its output, of the
    ``inner_tensors`` saved and of weights, at the largest of three instants. Sequence parallelism gathers the output's gradient
    first, with an additional copy if rows are not contiguous.

    After the backward pass of the last matmul: the gathered gradient is still allocated, those of its input and of its weight are
    new. After that of the product: each matmul before it has the gradient of its output. At the end: all inner tensors but the last
    are freed, and each of those matmuls has computed the gradient of the whole input. In tiles, the tensors of one tile live at
    once; if tiles are recomputed, also those that one of them saves.
    """
    c = compute_bytes(workload)
    inner, routed = feed_forward_width(model)
    hidden_bytes, inner_bytes = c * v.tokens * model.hidden_size, c * v.tokens * inner / v.tp / tiles
    residual_gradient = (
        (c + residual_bytes(stack, c, autocasts(stack, workload, v))) * v.tokens * model.hidden_size / v.activation_shards
    )
    recomputed = np.where((tiles > 1) & stack.tiles_recompute, inner_tensors * inner_bytes, 0.0)
    if routed or stack.memory_traits.regathers:
        return recomputed + 2 * (hidden_bytes + inner_bytes) + _region_bytes(hidden_bytes, stack, v)
    gathered_gradient, input_matmuls = np.where(v.activation_shards > 1, hidden_bytes, 0.0), model.ffn_matrices - 1
    weight_gradient = c * model.hidden_size * inner / v.tp if workload.train == "full" else 0.0
    recomputes = v.recompute_full | v.recompute_selective | v.recompute_budget | v.recompute_every_second
    copied_rows = np.where((v.micro_batch > 1) & ~recomputes, gathered_gradient, 0.0)
    last_matmul = gathered_gradient + np.maximum(inner_bytes + weight_gradient, copied_rows)
    input_gradients = input_matmuls * hidden_bytes + (1 - inner_tensors) * inner_bytes + (input_matmuls + 1) * weight_gradient
    peak: Floats = np.maximum(np.maximum(last_matmul, input_matmuls * inner_bytes + weight_gradient), input_gradients)
    return recomputed + residual_gradient + peak


def _attention_backward(model: ModelShape, workload: Workload, stack: Stack, fused: Mask, v: View) -> Floats:
    """Bytes of a layer when only the backward pass of attention remains: its input, the gathered input of the matmuls, the gradient
    of the residual stream, and the largest of three instants. In attention: all that it saved and the gradients of that, with
    context parallelism the buffers of its ring. In rotary positions, unless they are one kernel: gradients of queries in fp32, and
    twice as much in halves. At the end: the gradient of its input by each of the three matmuls, those of the first two with their
    sum.
    """
    c = compute_bytes(workload)
    h, q, o, kv = model.hidden_size, model.query_width, model.attended_width, model.key_value_width
    hidden_bytes, token_bytes = c * v.tokens * h, 2 * c * (q + o + kv)
    if stack.memory_traits.regathers:
        return v.tokens * (2 * c * h / v.activation_shards + token_bytes / v.tp) + _region_bytes(hidden_bytes, stack, v)
    rotary_token_bytes = 12.0 * q + c * kv if model.rotary_size and model.mla is None else 0.0
    attention_bytes = v.tokens * np.where(fused, token_bytes, max(token_bytes, rotary_token_bytes)) / v.tp
    if stack.ring_gradients == "fp32" and (v.cp > 1).any():
        attention_bytes = np.where(
            v.cp > 1, np.maximum(attention_bytes, v.tokens * _ring_backward(c, q, o, kv, v) / v.tp), attention_bytes
        )
    peak: Floats = np.maximum(attention_bytes, 3 * hidden_bytes + c * v.tokens * q / v.tp)
    return 2 * hidden_bytes / v.activation_shards + hidden_bytes + peak


def _ring_backward(c: float, q: int, o: int, kv: int, v: View) -> Floats:
    """Bytes per token at the peak of the backward pass of torch's ring attention
    (torch/distributed/tensor/experimental/_context_parallel/_attention.py: ``_templated_ring_attention_backward``).

    Saved queries, keys, values and output twice, and the output's gradient; gradients of queries in fp32 beside those that are
    updated; of keys and values in fp32 as they are added, sent and received; of the kernel those of half the queries and of all
    keys and values; keys and values that are sent, and those that were gathered of all ranks.
    """
    return c * (q + 2 * o + kv) + 8 * q + 12 * kv + c * (q / 2 + kv) + c * kv * (1 + v.cp)


def _region_bytes(whole: Floats, stack: Stack, v: View) -> Floats:
    """Bytes of inputs and outputs of tensor-parallel regions, for stacks whose live tensors are not known in detail."""
    return whole * np.where(v.tp > 1, 3.0 if stack.memory_traits.regathers else 1.0, 0.0)


@frozen
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
    (``PipelineStage.fwd_cache``), and if a rank has several stages, one input and one gradient arrive ahead. With ``ep_overlap`` a
    forward pass saves a layer before the backward pass beside it has freed one (megatron/core: model_chunk_schedule_plan.py).
    """
    layer_bytes = np.where(
        v.recompute_every_second,
        layer.autograd_bytes - stage.recomputed_share * (layer.autograd_bytes - layer.input_bytes),
        layer.saved_bytes,
    )
    stage_bytes = stage.layers * layer_bytes
    offloaded_share = np.minimum(traits.layers_away / np.maximum(stage.layers, 1.0), 1.0)
    saved = _resident_bytes(stage.in_flight * stage_bytes * (1 - offloaded_share), layer, v)
    boundary = (
        stage.outputs + np.where(v.looped & ~v.sequential_backward, 2.0, 0.0) if traits.holds_outputs else np.zeros_like(v.tp)
    )
    boundary = np.where(v.streamed, 0.0, boundary * layer.input_bytes) + stage.in_flight * stage.layers * layer.cached_bytes
    boundary = boundary + np.where(v.ep_overlap, layer_bytes, 0.0)
    current_stage = stage_bytes / np.where(v.sequential_backward, v.virtual_stages, 1.0)
    first_layer = np.minimum(stage_bytes, np.where(v.recompute_every_second, layer.input_bytes, layer.saved_bytes))
    last_layer = np.minimum(
        stage_bytes, np.where(v.recompute_every_second & (stage.recomputed_share < 1), layer.autograd_bytes, layer.saved_bytes)
    )
    remaining = np.where(v.activations_away, saved, saved - current_stage + first_layer)
    last_stage_alone = (saved + boundary) / v.virtual_stages - np.where(v.activations_away, 0.0, current_stage)
    recomputed_layers = np.where(v.recompute_every_second, stage.recomputed_share, 1.0) * stage.layers / v.virtual_stages
    return StageActivations(
        in_flight_bytes=saved + boundary,
        micro_batch_bytes=np.where(v.activations_away, 0.0, stage_bytes),
        after_first_bytes=remaining + boundary,
        last_stage_alone_bytes=last_stage_alone,
        layer_bytes=np.where(v.activations_away, 0.0, layer_bytes),
        last_layer_bytes=np.where(v.activations_away, 0.0, last_layer),
        first_layer_bytes=np.where(v.activations_away, 0.0, first_layer),
        output_bytes=np.where(stage.outputs > 0, layer.input_bytes, 0.0) if traits.holds_outputs else np.zeros_like(v.tp),
        weight_pass_bytes=np.where(
            layer.weight_pass_bytes > 0, recomputed_layers * (layer.recomputed_bytes + layer.weight_pass_bytes), 0.0
        ),
    )


def _resident_bytes(saved: Floats, layer: LayerActivations, v: View) -> Floats:
    """The part of ``saved`` that stays on the device: everything, or with activation offload a window of layers (of two pairs if
    every second layer is recomputed).
    """
    window = np.where(v.recompute_every_second, RESIDENT_LAYERS + 1, RESIDENT_LAYERS) * layer.saved_bytes
    return np.where(v.activations_away, np.minimum(saved, window), saved)
