"""Work of one decoder layer and of the head, for one micro-batch on one rank: FLOPs, bytes moved, bytes kept."""

from dataclasses import dataclass

import numpy as np

from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.view import Floats, Mask, View

FORWARD_KERNELS, FUSED_FORWARD_KERNELS, COMPILED_FORWARD_KERNELS = 75, 50, 12
"""Kernels' worth of host time that the forward pass of a layer takes. Counted: transformers' Llama dispatches 42 operators that
launch kernels and 39 views (torch 2.13, TorchDispatchMode); a view takes about 0.4 of the time of a launch and the calls of Python
modules about 17 launches (assumed). Fused norms, rope and gates leave 17 of the 42; compiled, one kernel stands for what lies
between two matmuls."""

BACKWARD_KERNELS, FUSED_BACKWARD_KERNELS, COMPILED_BACKWARD_KERNELS = 100, 70, 24
"""The same for the backward pass: 69 operators and 77 views counted."""

STREAMS = 4
"""Matmuls of experts that run side by side where each has kernels of its own (Transformer Engine's grouped linear)."""

ROUTING_KERNELS, EXPERT_KERNELS = 60, 20
"""What routing adds to both passes of a layer: router, permutations and exchanges; and each expert of a rank, where every one has
matmuls and casts of its own instead of one kernel for all."""

COLLECTIVE_KERNELS = 80
"""What tensor parallelism adds to a layer: ten collectives, each about eight launches' worth of host time in torch.distributed
(assumed: 50 us a call)."""

CAST_BYTES, EAGER_CAST_BYTES = 5, 25
"""Bytes moved to cast one bf16 number to float8 with a fresh scale. Compiled: read for its maximum, read again, written. Eager:
absolute value and maximum (6), times the scale in fp32 (6), clamped (8), cast (5)."""


FLOAT8_KEPT = 4.0
"""Bytes kept of each input value of a float8 matmul without a compiler: its product with the scale, in fp32. An 8B with 8,192
tokens takes 34 GiB more on 8 H100 than with one (torchtitan's commits); this makes 38."""

UNFUSED_KEPT, UNFUSED_MOVED = 5.0, 12.0
"""Bytes for each score that is written out: kept are the softmax, its dropout and that mask (arXiv 2205.05198, section 4.1); moved
forward are scores out of their matmul, in and out of a masked softmax and of its dropout, and into the next matmul."""


NORM_BYTES, NORM_BACKWARD_BYTES = 32.0, 60.0
"""Bytes a value that a norm written in torch moves more than one kernel does (transformers, models/llama/modeling_llama.py:
LlamaRMSNorm). Forward: cast to fp32 (6), squared (8), mean (4), scaled (8), cast back (6), times the weight (4). Backward:
gradient of the product (4) and of the weight (8), cast (6), gradient of the scaling (24), of mean and square (8), their sum (12),
cast back (6)."""

SLICE_PASSES = 1.5
"""How often the gradient of a slice passes through memory. Fitted: a layer of GPT-OSS-20B takes 60 ms longer backward on an RTX
4090 than its matmuls (pp-simulate/run.sh of arXiv 2604.27085), one pass; on an A800 two."""


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Forward pass of one layer. ``matmul_flops / matmuls`` is the size of a matmul that all tokens use; ``expert_flops`` are
    those of routed experts, ``expert_size`` what one kernel of theirs multiplies, ``expert_bytes`` their weights that a pass
    reads; ``moved_bytes`` is elementwise traffic, ``moved_backward_bytes`` that of the backward pass, ``cast_bytes`` that of
    casts to float8 in either.

    ``kept_bytes`` are activations kept for the backward pass without recomputation, ``selective_bytes`` with matmul and attention
    outputs alone, ``input_bytes`` of the layer's input; ``saved_bytes`` are what the candidate keeps, ``again_bytes`` what it makes
    again for a layer's turn, ``remade_bytes`` what stays of making it again for each weight's gradient. ``backward_bytes``
    are the most that gradients take beyond these while the feed-forward goes back, ``attention_bytes`` all that a layer has
    when only attention is left. Shares of the forward pass that it computes again: ``repeated`` of attention,
    ``repeated_matmuls``, ``repeated_moved`` of elementwise work, ``repeated_sums`` of tensor-parallel collectives and
    ``repeated_exchanges`` of those between experts. ``kernels`` are launched for both passes, ``awaited_kernels`` beside them
    while the device waits.
    """

    matmul_flops: Floats
    matmuls: int
    expert_flops: Floats
    expert_size: Floats
    expert_bytes: Floats
    weight_bytes: Floats
    attention_flops: Floats
    moved_bytes: Floats
    moved_backward_bytes: Floats
    kept_bytes: Floats
    selective_bytes: Floats
    input_bytes: Floats
    backward_bytes: Floats
    attention_bytes: Floats
    cast_bytes: Floats
    saved_bytes: Floats
    again_bytes: Floats
    remade_bytes: Floats
    repeated: Floats
    repeated_matmuls: Floats
    repeated_moved: Floats
    repeated_sums: Floats
    repeated_exchanges: Floats
    kernels: Floats
    awaited_kernels: Floats


@dataclass(frozen=True, kw_only=True)
class HeadWork:
    """Last projection and loss. ``logit_bytes`` is what lives at the start of the backward pass, ``kept_bytes`` what waits for it
    (log-softmax in fp32), ``lingering_bytes`` what stays from one micro-batch to the next; ``computed_bytes`` are the logits as the
    projection makes them, ``input_bytes`` what the last norm and the projection keep."""

    matmul_flops: Floats
    moved_bytes: Floats
    computed_bytes: Floats
    input_bytes: Floats
    logit_bytes: Floats
    kept_bytes: Floats
    lingering_bytes: Floats


@dataclass(frozen=True, kw_only=True)
class Work:
    """One micro-batch on one rank: a decoder layer's work and the head's."""

    layer: LayerWork
    head: HeadWork


def work_of(model: ModelShape, workload: Workload, stack: Stack, v: View) -> Work:
    """The work of every candidate."""
    return Work(layer=layer_work(model, workload, stack, v), head=head_work(model, workload, stack, v))


def layer_work(model: ModelShape, workload: Workload, stack: Stack, v: View) -> LayerWork:
    """Activation bytes follow arXiv 2205.05198, section 4.1, for gated feed-forwards and flash attention.

    Elementwise traffic counts what eager kernels read and write: two norms (4 h) and residual sums (6 h), rope in fp32 (10 for
    queries, keys and values), gate and product (5 of the inner width); backward 25 h with the sums of gradients, 10, and 9.
    Compiled, a norm with its residual sum is one kernel (8 h, backward 14 h), rope another (2), and the gate (3, backward 5).
    Sequence parallelism splits norms' inputs and outputs, but a linear keeps its gathered input for its weight gradient.
    """
    c = 4.0 if workload.precision == "fp32" else 2.0
    h, q, o, kv = model.hidden_size, model.query_width, model.attended_width, model.key_value_width
    inner, routed = _ffn_width(model)
    experts = model.ffn_matrices * h * _expert_width(model)
    others = model.attention_parameters + model.ffn_matrices * h * inner - experts
    matmuls = (5 if model.mla else 4) + (0 if others == model.attention_parameters else model.ffn_matrices)
    shards, t = v.activation_shards, v.tokens
    fused = v.compiled | (stack.elementwise == "fused")
    per_token = np.where(fused, model.ffn_matrices, 2 * model.ffn_matrices - 2)  # into the activation, out of it, their product
    keeps = stack.keeps
    gathered = shards if keeps.regathers else 1.0
    attended_kv = 2 * q if keeps.repeats_heads else kv
    kept = (2 + 2 * routed) * h / gathered + (q + o + attended_kv + per_token * inner) / v.tp
    norm_bytes = np.where(fused, 2.0, keeps.norm_bytes) if keeps.norm_bytes > 2 else 2.0
    norms = (norm_bytes + (keeps.dropout_bytes / 2 if model.norm == "layer" else 0.0)) * h / shards
    summed = 2 * h / gathered  # outputs of matmuls whose ranks' sums are saved, too
    outputs = summed + (q + kv + (model.ffn_matrices - 1) * inner) / v.tp
    arrived = np.where(v.tp > 1, 2 * h / shards, 0.0) + np.where(v.ep > 1, 2 * routed * h / gathered, 0.0)
    saved = h / shards + q / v.tp + keeps.selective_matmuls * v.saved_matmuls * outputs + v.saved_collectives * arrived
    saved = np.minimum(saved, kept + norms)
    forward = 10 * h / shards + (10 * (q + kv) + 5 * inner) / v.tp
    backward = 25 * h / shards + (10 * (q + kv) + 9 * inner) / v.tp
    if fused.any():
        forward = np.where(fused, 8 * h / shards + (2 * (q + kv) + 3 * inner) / v.tp, forward)
        backward = np.where(fused, 14 * h / shards + (2 * (q + kv) + 5 * inner) / v.tp, backward)
    normed, normed_back = _norms(model, stack, fused, h / shards, (q + kv / 2) / v.tp if model.qk_norm else 0.0)
    cast = t * (2 * h + (q + o + kv + 3 * inner) / v.tp) + (0.0 if stack.casts_once else (others + experts) / v.tp)
    scores, score_traffic = (0.0, 0.0) if stack.attention == "flash" else (UNFUSED_KEPT, UNFUSED_MOVED)
    pairs = t * model.heads * workload.seq_len / (v.tp * v.cp)
    wider, copied = _wider(stack, c, v), np.where(v.autocast & ~fused, _casts(model, stack), 0.0)
    scaled = np.where(v.float8 & ~fused, FLOAT8_KEPT * ((matmuls - 2) * h / gathered + (o + inner) / v.tp), 0.0)
    kept_bytes = t * (c * (kept + norms + copied * h) + 2 * wider * h + 4 * model.heads / v.tp + scaled) + scores * pairs
    selective_bytes = t * (c * saved + wider * h + 4 * model.heads / v.tp + scaled)
    input_bytes = (c + wider) * t * h / shards
    last_output = c * t * keeps.selective_matmuls * v.saved_matmuls * h / gathered
    recomputed = _recomputed(kept_bytes, selective_bytes, input_bytes, last_output, 4 + model.ffn_matrices, v)
    return LayerWork(
        matmul_flops=2 * t * others / v.tp,
        matmuls=matmuls,
        expert_flops=2 * t * experts / v.tp,
        expert_size=_expert_size(model, stack, v),
        weight_bytes=np.where(v.float8, 1.0, c) * others / v.tp,
        expert_bytes=np.where(v.float8, 1.0, c) * _reached_experts(model, v),
        attention_flops=(1 if stack.attention == "flash" else 2) * t * workload.attended_tokens * (q + o) / v.tp,
        moved_bytes=t * (c * (forward + 4 * routed * h) + normed) + score_traffic * pairs,
        moved_backward_bytes=t * normed_back
        + c * (t * (backward + np.where(fused, 4, 8) * routed * h) + _sliced(model, stack, v))
        + 2 * score_traffic * pairs,
        kept_bytes=kept_bytes,
        selective_bytes=selective_bytes,
        input_bytes=input_bytes,
        backward_bytes=_feed_forward_back(model, workload, stack, per_token, v),
        attention_bytes=_attention_back(model, workload, stack, fused, v),
        remade_bytes=np.where(
            v.zero_bubble & (v.recompute_full | v.recompute_alternate),
            (5 + model.ffn_matrices) * c * t * (q + o + attended_kv + per_token * inner) / v.tp,
            0.0,
        ),
        cast_bytes=np.where(v.float8, np.where(fused, CAST_BYTES, EAGER_CAST_BYTES) * cast, 0.0),
        kernels=_kernels(stack, recomputed["repeated_moved"], v),
        awaited_kernels=_awaited_kernels(model, stack, v),
        **recomputed,
    )


def _feed_forward_back(model: ModelShape, workload: Workload, stack: Stack, kept: Floats, v: View) -> Floats:
    """Bytes that gradients take at most as a feed-forward goes back, beyond all that the layer keeps: of its output, of the
    ``kept`` inner tensors and of weights, at the fullest of three instants. Sequence parallelism gathers the output's gradient
    first, beside a copy where rows are cut apart.

    The last matmul has gone back: the gathered gradient is there yet, that of its input and of its weight are new. Then the product
    is gone, and each matmul before it has a gradient to begin with. At last all inner tensors but the last of these are gone, and
    each of those matmuls has made the gradient of the whole input.
    """
    c = 4.0 if workload.precision == "fp32" else 2.0
    inner, routed = _ffn_width(model)
    whole, each = c * v.tokens * model.hidden_size, c * v.tokens * inner / v.tp
    arrives = (c + _wider(stack, c, v)) * v.tokens * model.hidden_size / v.activation_shards
    if routed or stack.keeps.regathers:
        return 2 * (whole + each) + _regathered(whole, stack, v)
    gathered, before = np.where(v.activation_shards > 1, whole, 0.0), model.ffn_matrices - 1
    weight = c * model.hidden_size * inner / v.tp if workload.train == "full" else 0.0
    made_again = v.recompute_full | v.recompute_selective | v.recompute_budget | v.recompute_alternate
    copied = np.where((v.micro_batch > 1) & ~made_again, gathered, 0.0)
    last = gathered + np.maximum(each + weight, copied)
    inputs = before * whole + (1 - kept) * each + (before + 1) * weight
    fullest: Floats = np.maximum(np.maximum(last, before * each + weight), inputs)
    return arrives + fullest


def _regathered(whole: Floats, stack: Stack, v: View) -> Floats:
    """Inputs and outputs of tensor-parallel regions, where nobody has looked at what lives at once."""
    return whole * np.where(v.tp > 1, 3.0 if stack.keeps.regathers else 1.0, 0.0)


def _attention_back(model: ModelShape, workload: Workload, stack: Stack, fused: Mask, v: View) -> Floats:
    """Bytes of a layer of which only attention is left: its input, whole that of the matmuls, the residual's gradient, and the most
    of three instants. Attention itself has all that it keeps and the gradients of it; then rotary positions, where no compiler has
    made one kernel of them, have those of queries in fp32 and as much in halves twice; and at last each of the three matmuls has
    made the gradient of its input, those of the first two with their sum."""
    c = 4.0 if workload.precision == "fp32" else 2.0
    h, q, o, kv = model.hidden_size, model.query_width, model.attended_width, model.key_value_width
    whole, widths = c * v.tokens * h, 2 * c * (q + o + kv)
    if stack.keeps.regathers:
        return v.tokens * (2 * c * h / v.activation_shards + widths / v.tp) + _regathered(whole, stack, v)
    turned = 12.0 * q + c * kv if model.rotary_size and model.mla is None else 0.0
    shared = v.tokens * np.where(fused, widths, max(widths, turned)) / v.tp
    fullest: Floats = np.maximum(shared, 3 * whole + c * v.tokens * q / v.tp)
    return 2 * whole / v.activation_shards + whole + fullest


def _wider(stack: Stack, c: float, v: View) -> Floats:
    """Bytes by which each value of the sums between blocks is wider than what matmuls compute in: autocast leaves fp32."""
    return np.where(v.autocast, 4 - c, 0.0) if stack.keeps.parameters == "shards" else np.zeros_like(v.tp)


def _casts(model: ModelShape, stack: Stack) -> float:
    """How many copies of a norm's output an autocast layer keeps beside one: each linear that reads it casts it for itself."""
    if stack.keeps.parameters != "shards":
        return 0.0
    return (1 if model.mla else 2) + (1 if model.moe is None and model.ffn_matrices == 3 else 0)


def _norms(model: ModelShape, stack: Stack, fused: Mask, width: Floats, queries: Floats | float) -> tuple[Floats, Floats]:
    """Bytes a token that norms move forward and backward beyond one pass over the two of ``width``: ``queries`` and keys may have
    norms, too, and norms written in torch pass over their input for each operation."""
    written = ~fused & (model.norm == "rms" and stack.keeps.norm_bytes > 2)
    forward, backward = (np.where(written, further, 0.0) for further in (NORM_BYTES, NORM_BACKWARD_BYTES))
    return 2 * width * forward + queries * (4 + forward), 2 * width * backward + queries * (6 + backward)


def _sliced(model: ModelShape, stack: Stack, v: View) -> Floats:
    """Numbers written in the backward pass of a layer whose experts are slices of one parameter, in a loop: the gradient of each
    slice is as large as the parameter, nearly all of it zeros."""
    if model.moe is None or stack.experts != "sliced":
        return np.zeros_like(v.tp)
    mine = model.moe.experts / v.ep
    return SLICE_PASSES * mine * mine * model.expert_parameters / v.etp * model.moe_layers / model.layers


def _kernels(stack: Stack, repeated_moved: Floats, v: View) -> Floats:
    if stack.graphs != "none":
        return np.zeros_like(v.tp)
    eager, eager_back = (
        (FUSED_FORWARD_KERNELS, FUSED_BACKWARD_KERNELS) if stack.elementwise == "fused" else (FORWARD_KERNELS, BACKWARD_KERNELS)
    )
    forward = np.where(v.compiled, COMPILED_FORWARD_KERNELS, eager) * (1 + repeated_moved)
    backward = np.where(v.compiled, COMPILED_BACKWARD_KERNELS, eager_back)
    return forward + backward + np.where(v.tp > 1, COLLECTIVE_KERNELS, 0)


def _awaited_kernels(model: ModelShape, stack: Stack, v: View) -> Floats:
    """Kernels of routing: the host has to read how many tokens each expert gets before it launches them, so the device waits."""
    if model.moe is None or stack.graphs == "step":
        return np.zeros_like(v.tp)
    each = 0 if stack.experts == "grouped" else EXPERT_KERNELS
    return (ROUTING_KERNELS + each * model.moe.experts / v.ep) * model.moe_layers / model.layers


def _recomputed(kept: Floats, selective: Floats, inputs: Floats, last_output: Floats, matmuls: int, v: View) -> dict[str, Floats]:
    """What recomputation saves and costs. A compiler with a budget drops first what is cheap to make again, as selective
    recomputation does, then what matmuls made; in between both grow evenly (measured: 1082, 694, 406 and 244 KiB saved with
    budgets of 1, 0.5, 0.2 and 0 on a small block). Zero-bubble schedules make a layer again for the gradients of its inputs and
    once more for those of each matmul's weights (measured on torch 2.13: 4 forward passes with two linears, 7 with five).

    Selective recomputation gathers inputs of tensor-parallel regions again, which with sequence parallelism is half of their
    collectives; sums it repeats unless they are saved, but a layer's last one, which nothing after it needs."""
    full = v.recompute_full | v.recompute_alternate
    saved = np.where(full, inputs, np.where(v.recompute_selective, selective, kept))
    repeated = np.where(v.recompute_full, 1.0, np.where(v.recompute_alternate, 0.5, 0.0))
    moved = np.where(v.recompute_selective, 1.0, repeated)
    again = kept - saved + np.where(v.recompute_selective, last_output, 0.0)
    saved = np.where(v.recompute_alternate, (kept + inputs) / 2, saved)
    if v.recompute_budget.any():
        left, edge = inputs + v.budget * (kept - inputs), (selective - inputs) / np.maximum(kept - inputs, 1.0)
        below = np.clip((edge - v.budget) / np.maximum(edge, 1e-9), 0.0, 1.0)
        above = np.clip((1 - v.budget) / np.maximum(1 - edge, 1e-9), 0.0, 1.0)
        saved, again = np.where(v.recompute_budget, left, saved), np.where(v.recompute_budget, kept - left, again)
        repeated, moved = np.where(v.recompute_budget, below, repeated), np.where(v.recompute_budget, above, moved)
    gathers, sums = 0.5 * v.sequence_parallel, np.where(v.sequence_parallel, 0.25, 0.5)
    shares = {
        "repeated": repeated,
        "repeated_matmuls": np.where(v.recompute_selective, 1 - v.saved_matmuls, repeated),
        "repeated_moved": moved,
        "repeated_sums": np.where(v.recompute_selective, gathers + ~v.saved_collectives * sums, repeated),
        "repeated_exchanges": np.where(v.recompute_selective, ~v.saved_collectives, repeated),
    }
    times = np.where(v.zero_bubble, matmuls + 1.0, 1.0)
    return {"saved_bytes": saved, "again_bytes": again, **{name: times * share for name, share in shares.items()}}


def head_work(model: ModelShape, workload: Workload, stack: Stack, v: View) -> HeadWork:
    """The loss is taken in fp32: log-softmax, its gradient and that of the logits live at once. A pipeline with one stage a rank
    holds the logits, too."""
    c = 4.0 if workload.precision == "fp32" else 2.0
    logits = v.tokens * model.vocab_size / v.logit_shards
    held = c * (v.pp > 1) * (v.virtual_stages == 1) if stack.keeps.holds_outputs else 0.0
    return HeadWork(
        matmul_flops=2 * v.tokens * model.hidden_size * model.vocab_size / v.tp,
        moved_bytes=logits * (c + 4 * 8),
        computed_bytes=c * logits,
        input_bytes=v.tokens * model.hidden_size * ((c + _wider(stack, c, v)) / v.activation_shards + c),
        logit_bytes=logits * (stack.logit_bytes + stack.keeps.parallel_loss_bytes * v.loss_parallel + held),
        kept_bytes=4 * logits,
        lingering_bytes=logits * stack.keeps.lingering_logit_bytes,
    )


def _expert_width(model: ModelShape) -> float:
    """Inner width of the routed experts that one token visits in an average layer."""
    return model.moe.expert_ffn_size * model.moe.experts_per_token * model.moe_layers / model.layers if model.moe else 0.0


def _expert_size(model: ModelShape, stack: Stack, v: View) -> Floats:
    """FLOPs of the expert matmuls that run together; the tokens of all ``ep`` ranks share out evenly among all experts."""
    if model.moe is None:
        return np.ones_like(v.tp)
    own = model.moe.experts / v.ep
    tokens = v.tokens * model.moe.experts_per_token / own
    together = own if stack.experts == "grouped" else np.minimum(own, STREAMS if stack.experts == "streams" else 1)
    return 2 * together * tokens * model.hidden_size * model.moe.expert_ffn_size / v.tp


def _reached_experts(model: ModelShape, v: View) -> Floats:
    """Parameters of the experts of a rank that some token of a micro-batch chooses, mean over layers."""
    if model.moe is None:
        return np.zeros_like(v.tp)
    own = model.moe.experts / v.ep
    tokens = v.tokens / np.where(v.etp > 1, 1.0, v.tp)
    reached = np.minimum(own, tokens * model.moe.experts_per_token)
    return reached * model.expert_parameters * model.moe_layers / model.layers / v.etp


def _ffn_width(model: ModelShape) -> tuple[float, float]:
    """Inner width that one token uses in an average layer, and the experts that it visits there."""
    if model.moe is None:
        return float(model.ffn_size), 0.0
    moe = model.moe
    share = model.moe_layers / model.layers
    width = share * moe.expert_ffn_size * (moe.experts_per_token + moe.shared_experts) + (1 - share) * model.ffn_size
    return width, share * moe.experts_per_token


def model_flops_per_token(model: ModelShape, workload: Workload) -> float:
    """Of training: 6 a parameter that a token meets, and attention (PaLM, arXiv 2204.02311, appendix B).

    Frozen weights count 4. The token embedding is a lookup; a tied one counts as the head.
    """
    head = model.vocab_size * model.hidden_size if model.tied_embeddings else 0
    met = model.active_parameters - model.embedding_parameters + head
    attention = 6 * model.layers * (model.query_width + model.attended_width) * workload.attended_tokens
    return (6.0 if workload.train == "full" else 4.0) * met + attention


def interpolate(size: Floats, points: tuple[tuple[float, float], ...]) -> Floats:
    """A curve at ``size``, in log size and flat outside its points."""
    sizes, shares = zip(*points, strict=True)
    shares_at: Floats = np.interp(np.log(np.maximum(size, 1.0)), np.log(sizes), shares)
    return shares_at
