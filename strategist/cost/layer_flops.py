"""FLOPs and bytes of one decoder layer and of the head, for one micro-batch on one rank."""

import numpy as np

from strategist.contract.loss import Loss
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import LayerActivations, layer_activations
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.elementwise import elementwise_traffic
from strategist.cost.indexed_kernels import IndexedKernels, indexed_kernels
from strategist.cost.layer_widths import compute_bytes, expert_width, feed_forward_width, shared_matmuls
from strategist.cost.loss_memory import LossMemory, loss_chunks, loss_memory
from strategist.cost.stack_operations import biases_by_expert
from strategist.frozen import frozen

FORWARD_KERNELS, FUSED_FORWARD_KERNELS, COMPILED_FORWARD_KERNELS = 75, 50, 12
"""Host time of a layer's forward pass, in kernel launches. Counted: transformers' Llama dispatches 42 operators that launch
kernels and 39 views (torch 2.13, TorchDispatchMode); a view takes about 0.4 of the time of a launch, and the calls of Python
modules about 17 launches (assumed). With fused norms, rope and gates 17 of the 42 remain; compiled, one kernel replaces all
between two matmuls.
"""

BACKWARD_KERNELS, FUSED_BACKWARD_KERNELS, COMPILED_BACKWARD_KERNELS = 100, 70, 24
"""Host time of a layer's backward pass, in kernel launches: 69 operators and 77 views counted."""

EXPERT_STREAMS = 4
"""Number of experts' matmuls that run concurrently if each expert has kernels of its own (Transformer Engine's grouped linear)."""

ROUTING_KERNELS, GRAPHED_ROUTING_KERNELS = 150, 70
"""Host time of routing in both passes of a layer, in kernel launches, and what is left of it where CUDA graphs hold the router
and its preparation of exchanges. Counted on Megatron-Core 0.16.1 (core/transformer/moe: router.py, token_dispatcher.py; torch
2.13, TorchDispatchMode): 65 operators that launch kernels and 73 views, of which 13 and 27 remain, and seven collectives, of
which six do, each as one of tensor parallelism.
"""

AWAITED_KERNELS, EXPERT_KERNELS = 60, 20
"""Launches of routing while the device is idle, because the host has waited for the number of tokens of each expert, and
launches of each expert on a rank if experts have separate matmuls and casts instead of a grouped kernel.
"""

FORWARD_ROUTING, FORWARD_EXPERTS = 1 / 6, 1 / 3
"""Shares of the forward pass, which recomputation repeats: of routing's launches that the device does not await, 15 of 90, since
the forward pass has half of routing's 150 (on one rank, counted as above: 28 of 52 operators, 35 of 83 views) and all awaited
ones; and of experts' launches, two matmuls of six.
"""

BIAS_KERNELS = 10
"""Kernel launches in both passes for the biases of one expert that Python adds: six kernels, six views (counted with torch 2.13,
TorchDispatchMode), and an addition of each of its two gradients.
"""

COLLECTIVE_KERNELS, FORWARD_COLLECTIVE_KERNELS = 80, 32
"""Host time of a layer's tensor-parallel collectives, in kernel launches, and that of its forward pass, which recomputation
repeats: ten collectives, four of them in the forward pass, each about eight launches in torch.distributed (assumed: 50 us per
call).
"""

ATTENTION_TILE = 128
"""Tokens by which a windowed kernel's tiles extend beyond the window: tiles that lie partly inside are computed whole. Tiles span
64 to 192 queries or keys in FlashAttention (Dao-AILab/flash-attention 0251105, csrc/flash_attn/src: flash_fwd_launch_template.h;
flash_fwd_kernel.h, ``n_block_min``) and 128 by 128 in FlexAttention (torch/nn/attention/flex_attention.py,
``_DEFAULT_SPARSE_BLOCK_SIZE``).
"""

CAST_BYTES, EAGER_CAST_BYTES = 5, 25
"""Bytes moved to cast one bf16 number to float8 with a new scale. Compiled, or by Transformer Engine: read for the maximum, read
again, written. Eager: absolute value and maximum (6), scaled in fp32 (6), clamped (8), cast (5).
"""

COLUMN_CAST_BYTES = 16
"""The same where a compiled cast has a scale for each column of what it reads: kernels of inductor move 5 bytes at 0.6 to 0.7 TB/s,
as their reads are not contiguous, and at 2.0 to 2.2 TB/s with scales by row (H100, github.com/pytorch/pytorch/issues/149982).
"""

COMPILED_LOSS_BYTES = 8.0
"""Bytes that a compiled loss moves for each bf16 logit: read for maximum and sum, read and written backward."""


@frozen
class LayerWork:
    """Forward pass of one layer.

    matmul_flops, matmuls: FLOPs and number of matmuls that process all tokens.
    expert_flops, expert_size, expert_bytes: FLOPs of routed experts, of one of their kernels, and bytes of the weights that they
        read in a pass.
    moved_bytes, moved_backward_bytes: elementwise traffic of the forward and of the backward pass; ``cast_bytes`` and
        ``cast_backward_bytes`` are that of casts to float8.
    indexed: the elementwise kernels that compute addresses.
    activations: bytes saved for the backward pass.
    repeated, repeated_matmuls, repeated_elementwise: recomputed shares of attention, matmuls and elementwise work.
    repeated_sums, repeated_exchanges: repeated shares of tensor-parallel collectives, and of those between experts.
    kernels: number of launches of both passes that a layer without experts has, too; ``routing_kernels`` are those of routing.
    awaited_kernels, expert_kernels: additional launches while the device waits, of routing and by one call for all experts.
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
    indexed: IndexedKernels
    activations: LayerActivations
    cast_bytes: Floats
    cast_backward_bytes: Floats
    repeated: Floats
    repeated_matmuls: Floats
    repeated_elementwise: Floats
    repeated_sums: Floats
    repeated_exchanges: Floats
    kernels: Floats
    routing_kernels: Floats
    awaited_kernels: Floats
    expert_kernels: Floats


@frozen
class HeadWork:
    """Last projection and loss: FLOPs of the projection, bytes of elementwise traffic, and ``memory`` of the loss."""

    matmul_flops: Floats
    moved_bytes: Floats
    memory: LossMemory


@frozen
class Work:
    """Work of one micro-batch on one rank: of a decoder layer, and of the head."""

    layer: LayerWork
    head: HeadWork


def work_of(model: ModelShape, workload: Workload, stack: Stack, v: View) -> Work:
    """The work of each candidate."""
    return Work(layer=layer_work(model, workload, stack, v), head=head_work(model, workload, stack, v))


def layer_work(model: ModelShape, workload: Workload, stack: Stack, v: View) -> LayerWork:
    """The work of one decoder layer."""
    c = compute_bytes(workload)
    h, q, o = model.hidden_size, model.query_width, model.attended_width
    inner, _ = feed_forward_width(model)
    experts = model.ffn_matrices * h * expert_width(model)
    others = model.attention_parameters + model.ffn_matrices * h * inner - experts
    t = v.tokens
    cast, cast_backward = _cast_bytes(model, stack, (others + experts) / v.tp, v)
    activations = layer_activations(model, workload, stack, v)
    elementwise, elementwise_backward = elementwise_traffic(model, workload, stack, v)
    recomputed_last = model.dense_layers / model.layers if stack.recomputes == "needed" else 0.0
    last_matmul = recomputed_last * h * model.ffn_size / (others + experts)
    traits = stack.memory_traits
    saved_matmuls = traits.selective_matmuls * (1.0 if traits.saves_experts else others / (others + experts))
    recomputed = _recomputed_shares(activations, model, v, saved_matmuls, recomputed_last, last_matmul)
    if stack.recomputes_attention:
        recomputed["repeated"] = np.where(v.recompute_none, 1.0, recomputed["repeated"])
    return LayerWork(
        matmul_flops=2 * t * others / v.tp,
        matmuls=shared_matmuls(model),
        expert_flops=2 * t * experts / v.tp,
        expert_size=_expert_size(model, stack, v),
        weight_bytes=np.where(v.float8, 1.0, c) * others / v.tp,
        expert_bytes=np.where(v.float8, 1.0, c) * _reached_experts(model, v),
        attention_flops=2 * t * computed_tokens(model, workload, stack) * (q + o) / v.tp,
        moved_bytes=elementwise,
        moved_backward_bytes=elementwise_backward,
        indexed=indexed_kernels(model, stack, v),
        activations=activations,
        cast_bytes=cast,
        cast_backward_bytes=cast_backward,
        kernels=_kernels(stack, recomputed["repeated_elementwise"], recomputed["repeated_sums"], v),
        routing_kernels=_routing_kernels(model, stack, recomputed["repeated"], v),
        awaited_kernels=_awaited_kernels(model, stack, recomputed["repeated"], v),
        expert_kernels=np.where(stack.experts == "streams", _expert_kernels(model, stack, recomputed["repeated"], v), 0.0),
        **recomputed,
    )


def computed_tokens(model: ModelShape, workload: Workload, stack: Stack) -> float:
    """Tokens that attention's kernel multiplies each token with, mean over layers: those that the token sees, in whole tiles; all
    of the sequence where scores are written to memory or a window is a mask.
    """
    if stack.attention == "unfused":
        return workload.attended_tokens

    def of_layer(window: int) -> float:
        if not 0 < window < workload.attended_tokens:
            return workload.visible_tokens()
        return float(workload.seq_len) if stack.windows == "masked" else workload.visible_tokens(window + ATTENTION_TILE)

    return sum(layers * of_layer(window) for window, layers in model.windows.items()) / model.layers


def _cast_bytes(model: ModelShape, stack: Stack, weights: Floats, v: View) -> tuple[Floats, Floats]:
    """Bytes moved to cast to float8, in the forward and in the backward pass: a matmul's input, and the gradient of its output;
    also the input once more unless it was saved in float8, and in both passes the ``weights`` unless they are cast once a step.
    With a scale per row, the gradient is cast twice, as its two matmuls sum over different dimensions; they sum over the columns
    of the input, the weights and one of the gradients.

    Transformer Engine casts what sequence parallelism splits before it gathers it (transformer_engine/pytorch/module: base.py,
    ``grad_output_preprocess``; layernorm_linear.py); torchao casts what its linears take (torchao/float8/float8_linear.py:
    ``matmul_with_hp_or_float8_args``).
    """
    if not v.float8.any():
        return np.zeros_like(v.tp), np.zeros_like(v.tp)
    h, saved = model.hidden_size, stack.memory_traits.quantized_inputs
    inner, routed = feed_forward_width(model)
    readers = 1.0 + (shared_matmuls(model) > (5 if model.mla else 4))  # attention, and a dense or shared feed-forward
    hidden = readers * h / (v.activation_shards if saved else 1.0) + routed * h / v.tp
    inputs = hidden + (model.attended_width + inner) / v.tp
    gradients = hidden + (model.query_width + model.key_value_width + (model.ffn_matrices - 1) * inner) / v.tp
    fused = v.compiled | (stack.elementwise == "fused") | saved
    each = np.where(v.float8, np.where(fused, CAST_BYTES, EAGER_CAST_BYTES), 0.0)
    by_column = np.where(v.float8_rows & v.compiled & (not saved), COLUMN_CAST_BYTES, each)
    parameters = 0.0 if stack.casts_once else weights
    again = (0.0 if saved else inputs) + np.where(v.float8_rows & (not saved), gradients, 0.0)
    return each * (v.tokens * inputs + parameters), each * v.tokens * gradients + by_column * (v.tokens * again + parameters)


def _kernels(stack: Stack, repeated_elementwise: Floats, repeated_sums: Floats, v: View) -> Floats:
    if stack.graphs != "none":
        return np.zeros_like(v.tp)
    eager, eager_back = (
        (FUSED_FORWARD_KERNELS, FUSED_BACKWARD_KERNELS) if stack.elementwise == "fused" else (FORWARD_KERNELS, BACKWARD_KERNELS)
    )
    forward = np.where(v.compiled, COMPILED_FORWARD_KERNELS, eager) * (1 + repeated_elementwise)
    backward = np.where(v.compiled, COMPILED_BACKWARD_KERNELS, eager_back)
    collectives = COLLECTIVE_KERNELS + FORWARD_COLLECTIVE_KERNELS * repeated_sums
    return forward + backward + np.where(v.tp > 1, collectives, 0.0)


def _awaited_kernels(model: ModelShape, stack: Stack, repeated: Floats, v: View) -> Floats:
    """Kernel launches of routing during which the device is idle: the host must read the number of tokens per expert before it
    can launch them, again in each forward pass that is repeated. Where experts run in a loop, it reads that for each.
    """
    if model.moe is None or stack.graphs == "step":
        return np.zeros_like(v.tp)
    expert_kernels = _expert_kernels(model, stack, repeated, v) if stack.experts == "sliced" else 0.0
    awaited: Floats = AWAITED_KERNELS * (1 + repeated) * model.moe_layers / model.layers + expert_kernels
    return awaited


def _routing_kernels(model: ModelShape, stack: Stack, repeated: Floats, v: View) -> Floats:
    """Other kernel launches of routing, and those of biases that Python adds expert by expert."""
    if model.moe is None or stack.graphs == "step":
        return np.zeros_like(v.tp)
    routing = (GRAPHED_ROUTING_KERNELS if stack.graphs == "layers" else ROUTING_KERNELS) - AWAITED_KERNELS
    biases = BIAS_KERNELS * model.moe.experts / v.ep if biases_by_expert(model, stack) else np.zeros_like(v.tp)
    found: Floats = (routing * (1 + FORWARD_ROUTING * repeated) + biases) * model.moe_layers / model.layers
    return found


def _expert_kernels(model: ModelShape, stack: Stack, repeated: Floats, v: View) -> Floats:
    """Kernel launches of a rank's experts. Transformer Engine launches them in a loop of C++, in one call for all experts
    (transformer_engine/pytorch: general_grouped_gemm), which has no part in how long the host takes for Python's modules.
    """
    if model.moe is None or stack.graphs == "step":
        return np.zeros_like(v.tp)
    kernels: Floats = EXPERT_KERNELS * (1 + FORWARD_EXPERTS * repeated) * model.moe.experts / v.ep
    return kernels * model.moe_layers / model.layers


def _recomputed_shares(
    activations: LayerActivations, model: ModelShape, v: View, selective_matmuls: float, unrepeated_last: float, last_matmul: float
) -> dict[str, Floats]:
    """Shares of a layer's forward pass that are recomputed.

    selective_matmuls: share of the matmuls whose outputs the framework saves if it saves matmuls.
    unrepeated_last: share of the layers whose last operations are not recomputed.
    last_matmul: share of these layers' last matmul in the FLOPs of all matmuls.

    A compiler with a memory budget recomputes cheap operations first, as selective recomputation does, then matmuls; the shares of
    both are linear in the budget. Zero-bubble schedules recompute a layer for the gradients of its inputs and once more for those
    of each matmul's weights (measured on torch 2.13: 4 forward passes with two linears, 7 with five).

    Selective recomputation repeats the gathers of inputs of tensor-parallel regions, which with sequence parallelism are half of
    their collectives. It repeats reductions unless they are saved, except a layer's last one, whose result nothing reads.
    """
    repeated = np.where(v.recompute_full, 1.0, np.where(v.recompute_every_second, 0.5, 0.0))
    elementwise = np.where(v.recompute_selective, 1.0, repeated)
    if v.recompute_budget.any():
        inputs, autograd = activations.input_bytes, activations.autograd_bytes
        selective_budget = (activations.selective_bytes - inputs) / np.maximum(autograd - inputs, 1.0)
        matmul_share = np.clip((selective_budget - v.budget) / np.maximum(selective_budget, 1e-9), 0.0, 1.0)
        elementwise_share = np.clip((1 - v.budget) / np.maximum(1 - selective_budget, 1e-9), 0.0, 1.0)
        repeated = np.where(v.recompute_budget, matmul_share, repeated)
        elementwise = np.where(v.recompute_budget, elementwise_share, elementwise)
    # layers whose experts are no tensor-parallel region
    unsharded_experts = np.where(v.etp == 1, model.moe_layers / model.layers, 0.0)
    gathers, reductions = (0.5 - 0.25 * unsharded_experts) * v.sequence_parallel, np.where(v.sequence_parallel, 0.25, 0.5)
    region_share = 1 - unsharded_experts * np.where(v.sequence_parallel, 0.5, 0.25) - unrepeated_last * reductions
    matmuls = (1 - last_matmul) * np.where(v.recompute_selective, 1 - selective_matmuls * v.saved_matmuls, repeated)
    shares = {
        "repeated": repeated,
        "repeated_matmuls": np.where(v.recompute_budget, repeated, matmuls),
        "repeated_elementwise": elementwise,
        "repeated_sums": np.where(v.recompute_selective, gathers + ~v.saved_collectives * reductions, repeated * region_share),
        "repeated_exchanges": np.where(v.recompute_selective, ~v.saved_collectives, repeated),
    }
    passes = np.where(v.zero_bubble, 4 + model.ffn_matrices + 1.0, 1.0)
    return {name: passes * share for name, share in shares.items()}


def head_work(model: ModelShape, workload: Workload, stack: Stack, v: View) -> HeadWork:
    """Last projection and loss of one micro-batch."""
    logits = v.tokens * model.vocab_size / v.logit_shards
    return HeadWork(
        matmul_flops=2 * v.tokens * model.hidden_size * model.vocab_size / v.tp,
        moved_bytes=np.where(v.chunked_loss, _chunked_loss_bytes(model, workload, v), logits * _loss_bytes(stack.loss, v)),
        memory=loss_memory(model, workload, stack, v),
    )


def _loss_bytes(loss: Loss, v: View) -> Floats | float:
    """Bytes that the loss moves per logit."""
    return np.where(v.compiled, COMPILED_LOSS_BYTES, loss.moved_bytes) if loss.compiled_logit_bytes else loss.moved_bytes


def _chunked_loss_bytes(model: ModelShape, workload: Workload, v: View) -> Floats:
    """Bytes that the loss moves with the knob ``chunked_loss``. For each logit: casts to fp32 and back, and in fp32 a maximum (4),
    its subtraction (8), exponentials (8), their sum (4) and the scaling to gradients (8). For each parameter of a trained head and
    each of several chunks: the chunk's share of the gradient, written and added to the sum in fp32.
    """
    c, chunks = compute_bytes(workload), loss_chunks(model, v)
    logits, head = v.tokens * model.vocab_size / v.tp, model.hidden_size * model.vocab_size / v.tp
    head_gradient_bytes = np.where(chunks > 1, chunks * head * (2 * c + 8.0), 0.0) if workload.train == "full" else 0.0
    moved: Floats = logits * (32.0 + (2 * (c + 4.0) if c < 4.0 else 0.0)) + head_gradient_bytes
    return moved


def _expert_size(model: ModelShape, stack: Stack, v: View) -> Floats:
    """FLOPs of the expert matmuls that run concurrently. Tokens of all ``ep`` ranks are distributed evenly over all experts."""
    if model.moe is None:
        return np.ones_like(v.tp)
    local_experts = model.moe.experts / v.ep
    tokens = v.tokens * model.moe.experts_per_token / local_experts
    streams = np.minimum(local_experts, EXPERT_STREAMS if stack.experts == "streams" else 1)
    concurrent_experts = local_experts if stack.experts == "grouped" else streams
    return 2 * concurrent_experts * tokens * model.hidden_size * model.moe.expert_ffn_size / v.tp


def _reached_experts(model: ModelShape, v: View) -> Floats:
    """Parameters of a rank's experts that receive at least one token of a micro-batch, averaged over layers."""
    if model.moe is None:
        return np.zeros_like(v.tp)
    local_experts = model.moe.experts / v.ep
    tokens = v.tokens / np.where(v.etp > 1, 1.0, v.tp)
    reached = np.minimum(local_experts, tokens * model.moe.experts_per_token)
    return reached * model.expert_parameters * model.moe_layers / model.layers / v.etp


def model_flops_per_token(model: ModelShape, workload: Workload) -> float:
    """Model FLOPs of training one token: 6 per active parameter, plus attention (PaLM, arXiv 2204.02311, appendix B).

    Attention counts twice the pairs under the mask, which are all pairs where no layer has a window. Frozen weights count 4. The
    token embedding is a lookup; a tied one counts as the head.
    """
    head = model.vocab_size * model.hidden_size if model.tied_embeddings else 0
    used_parameters = model.active_parameters - model.embedding_parameters + head
    visible = sum(layers * workload.visible_tokens(window) for window, layers in model.windows.items())
    attention = 12 * visible * (model.query_width + model.attended_width)
    return (6.0 if workload.train == "full" else 4.0) * used_parameters + attention


def interpolate(size: Floats, points: tuple[tuple[float, float], ...]) -> Floats:
    """Value of a curve at ``size``: linear in log size, constant beyond its end points."""
    sizes, shares = zip(*points, strict=True)
    shares_at: Floats = np.interp(np.log(np.maximum(size, 1.0)), np.log(sizes), shares)
    return shares_at
