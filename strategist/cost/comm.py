"""Communication: seconds of every collective on its link, before overlap."""

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.layer_flops import LayerWork
from strategist.cost.layer_widths import shared_matmuls
from strategist.cost.model_states import Stage, StateBytes
from strategist.cost.muon import muon_matrices
from strategist.cost.process_groups import Group, Groups
from strategist.cost.stack_operations import gathers_heads
from strategist.frozen import frozen

BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK = 40e6, 1e6
"""Parameters that Megatron gathers and reduces in one collective: the larger of 40 million and a million for each data-parallel
rank, so that latency does not bound rings of many ranks (DistributedDataParallelConfig.bucket_size). FSDP2 uses layers.
"""

POWERSGD_RANK = 4
"""Rank of PowerSGD's factors (arXiv 1905.13727 trains with 1 to 4)."""


@frozen
class Collectives:
    """Link seconds of one micro-batch on one stage: tensor, context and expert parallelism per layer; pp per transfer.

    cp_keys: of ``cp``, one pass of keys and values, and of their gradients, where attention can run beside it; else 0.
    gather_forward, gather_backward, reduce: FSDP2's, of one layer.
    """

    tp: Floats
    cp: Floats
    cp_keys: Floats
    ep: Floats
    pp: Floats
    head: Floats
    gather_forward: Floats
    gather_backward: Floats
    reduce: Floats


@frozen
class StageCollectives:
    """Link seconds of a stage's other collectives.

    gather, reduce: FSDP2's, of embedding and head.
    replica: all-reduce of all gradients between replicas (HSDP and DDP).
    update: all-gather of each matrix in bf16 by Muon on torch's shards.
    """

    gather: Floats
    reduce: Floats
    replica: Floats
    update: Floats


def collectives(
    model: ModelShape,
    workload: Workload,
    stack: Stack,
    stage: Stage,
    work: LayerWork,
    per: StateBytes,
    groups: Groups,
) -> Collectives:
    """Every collective of a layer of the stage. ``work`` gives the shares that recomputation repeats."""
    v, tensor = groups.v, groups.tensor
    c = per.gathered
    activation = v.tokens * model.hidden_size * c
    dense, experts = stage.gathered_dense, stage.gathered_experts
    sent_bytes = per.gathered_layer * _gathered_share(stack, per, v)
    trained = per.trained if per.frozen else 1.0
    bucket = np.maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * v.fsdp_ranks)
    calls = np.minimum((dense + experts) * trained / bucket, 1.0) if stack.memory_traits.parameters == "copies" else 1.0
    forward = _layer_seconds(groups, dense * np.where(v.float8_gather, 1.0, sent_bytes), experts * sent_bytes, calls)
    backward = np.where(v.reshard_subgroup, groups.resharding.gather((dense + experts) * sent_bytes), 0.0)
    return Collectives(
        tp=_tensor_parallel_seconds(tensor, activation, model, stack, work.repeated_sums, v)
        + _normed_heads_seconds(tensor, model, stack, work.repeated, v, c),
        cp=_context_parallel_seconds(groups.context, model, workload, stack, work.repeated, v, c),
        cp_keys=np.zeros_like(v.cp) if _gathers_first(model, workload, stack) else _keys_seconds(groups.context, model, v, c),
        ep=_expert_parallel_seconds(groups, model, stack, activation, work.repeated_exchanges),
        pp=_transfer_seconds(groups.cluster, activation, v),
        head=_head_seconds(tensor, model, activation, v, c),
        gather_forward=forward,
        gather_backward=np.where(v.reshard, forward, backward),
        reduce=_layer_seconds(groups, dense * trained * v.reduce_bytes, experts * trained * v.reduce_bytes, calls),
    )


def _gathered_share(stack: Stack, per: StateBytes, v: View) -> Floats:
    """Share of the parameters that all-gathers move: without frozen ones, if the framework keeps whole copies and only updates
    change them.
    """
    whole = per.frozen and stack.memory_traits.parameters == "copies"
    return np.where(v.frees_parameters | (not whole), 1.0, per.trained)


def stage_collectives(
    model: ModelShape, workload: Workload, stack: Stack, stage: Stage, per: StateBytes, groups: Groups
) -> StageCollectives:
    """Collectives of a stage that are not of its layers."""
    v, fsdp = groups.v, groups.fsdp
    trained = per.trained if per.frozen else 1.0
    gradients = stage.shard * trained
    return StageCollectives(
        gather=fsdp.gather(stage.ends / v.tp * per.gathered * _gathered_share(stack, per, v)),
        reduce=fsdp.gather(stage.ends / v.tp * trained * v.reduce_bytes),
        replica=groups.replicas.reduce(
            gradients * _replica_bytes(model, v), _replica_calls(model, stack, stage, per, gradients, v)
        ),
        update=_muon_gather_seconds(model, workload, stack, stage, groups),
    )


def _muon_gather_seconds(model: ModelShape, workload: Workload, stack: Stack, stage: Stage, groups: Groups) -> Floats:
    """Seconds in which Muon gathers the shards of its matrices: over the FSDP ranks, then over tp."""
    v, matrices = groups.v, muon_matrices(model, workload)
    if not matrices or stack.family != "torch":
        return np.zeros_like(v.tp)
    size = 2.0 * stage.layers * sum(count * rows * columns for count, rows, columns in matrices)
    calls = stage.layers * sum(count for count, *_ in matrices)
    return groups.fsdp.gather(size / v.tp, calls) + groups.tensor.gather(size, calls)


def _layer_seconds(groups: Groups, dense: Floats, experts: Floats, calls: Floats | float) -> Floats:
    """All-gather or reduce-scatter of one layer with ``dense`` and ``experts`` bytes (unsharded), in ``calls`` collectives each."""
    fsdp, is_split = groups.fsdp, groups.v.ep * groups.v.etp > 1
    together = fsdp.gather(dense + experts, calls)
    if not is_split.any():
        return together
    return np.where(is_split, fsdp.gather(dense, calls) + groups.experts_fsdp.gather(experts, calls), together)


def _replica_bytes(model: ModelShape, v: View) -> Floats:
    """Bytes per gradient in all-reduces between replicas: of its type, of a cast, or of two fp32 factors of rank r for a square
    matrix (arXiv 1905.13727, section 3).
    """
    low_rank = 2 * POWERSGD_RANK * 4.0 / model.hidden_size
    return np.where(v.half_hook, 2.0, np.where(v.low_rank_hook, low_rank, v.reduce_bytes))


def _replica_calls(model: ModelShape, stack: Stack, stage: Stage, per: StateBytes, gradients: Floats, v: View) -> Floats:
    """All-reduces between replicas in a step. FSDP2 has one for each layer. DDP has one for each bucket of gradients, which closes
    when it is full, so that a larger matrix is one, too (torch/csrc/distributed/c10d/reducer.cpp:
    ``compute_bucket_assignment_by_size``); embedding and head are two more. Other frameworks have one for all gradients.
    """
    parameter_bytes = per.gathered if stack.memory_traits.parameters == "copies" else per.stored
    matrices = stage.layers * shared_matmuls(model) + 2.0
    buckets = np.minimum(gradients * parameter_bytes / stack.bucket_bytes, matrices) if stack.bucket_bytes else 1.0
    return np.maximum(np.where(v.fsdp_ranks > 1, stage.layers, buckets), 1.0)


def _tensor_parallel_seconds(
    tensor: Group, activation: Floats, model: ModelShape, stack: Stack, repeated: Floats, v: View
) -> Floats:
    """Two regions a layer, each an all-reduce forward and one backward (arXiv 1909.08053, section 3), or, with sequence
    parallelism, an all-gather and a reduce-scatter of the same volume; recomputation repeats ``repeated`` of both forward.

    Experts that tp does not split are no such region: each tp rank sends its share of the tokens, and the results are gathered
    unless sequence parallelism leaves them sharded.

    Transformer Engine gathers float8 for matmuls in float8: inputs, and gradients of outputs (module/base.py:
    ``grad_output_preprocess``).
    """
    gathered_bytes = np.where(v.float8 & stack.memory_traits.quantized_inputs, activation / 2, activation)
    scattered = tensor.gather(gathered_bytes) + tensor.gather(activation)
    sums = 4 - np.where(v.etp == 1, np.where(v.sequence_parallel, 2.0, 1.0), 0.0) * model.moe_layers / model.layers
    return np.where(v.sequence_parallel, scattered, tensor.reduce(activation)) * (sums + 2 * repeated)


def _normed_heads_seconds(tensor: Group, model: ModelShape, stack: Stack, repeated: Floats, v: View, c: float) -> Floats:
    """Seconds in which some stacks gather the queries and keys of all heads for their norms."""
    if not gathers_heads(model, stack):
        return np.zeros_like(v.tp)
    return tensor.gather(v.tokens * (model.query_width + model.key_value_width / 2) * c) * (1 + repeated)


def _context_parallel_seconds(
    context: Group, model: ModelShape, workload: Workload, stack: Stack, repeated: Floats, v: View, c: float
) -> Floats:
    """Seconds of context parallelism; an all-gather and cp - 1 hops of a ring move the same bytes.

    torch's ring passes keys and values around in the forward pass and again in the backward pass, and passes the gradient of each
    slice by every rank and back in fp32 (torch 2.13: _templated_ring_attention_backward). Masks that the ring does not support are
    computed on gathered keys and values, whose gradients are scattered (arXiv 2407.21783, section 3.3.2). Other rings pass
    gradients along with keys and values.
    """
    ring_pass = _keys_seconds(context, model, v, c)
    if stack.ring_gradients == "computed":
        return ring_pass * (3 + repeated)
    if gathers_keys(model, workload):
        return ring_pass * (2 + repeated)
    return_hop = _key_elements(model, v) * 4.0 / context.bytes_per_second + context.ranks * context.hop_seconds
    return ring_pass * (2 + repeated) + np.where(context.ranks > 1, return_hop, 0.0)


def _keys_seconds(context: Group, model: ModelShape, v: View, c: float) -> Floats:
    """Seconds in which keys and values pass all context-parallel ranks once."""
    return context.gather(_key_elements(model, v) * c)


def _key_elements(model: ModelShape, v: View) -> Floats:
    """Elements of keys and values of all context-parallel ranks."""
    return v.tokens * v.cp * model.key_value_width / v.tp


def _gathers_first(model: ModelShape, workload: Workload, stack: Stack) -> bool:
    """Whether attention waits for the keys and values of all ranks."""
    return stack.ring_gradients != "computed" and gathers_keys(model, workload)


def gathers_keys(model: ModelShape, workload: Workload) -> bool:
    """Whether attention has a mask that torch's ring does not support: of documents, of a sliding window, or with sinks."""
    windowed = 0 < model.sliding_window < workload.seq_len
    return model.attention_sinks or windowed or workload.document_tokens > 0


def _expert_parallel_seconds(groups: Groups, model: ModelShape, stack: Stack, activation: Floats, repeated: Floats) -> Floats:
    """Seconds of token dispatch and combine, forward and backward (arXiv 2006.16668); with etp 1 the tokens are distributed over tp
    ranks.

    Traffic between nodes uses each rank's own port, beside the traffic inside the node.
    """
    v, cluster = groups.v, groups.cluster
    if model.moe is None:
        return np.zeros_like(v.tp)
    experts_per_token, token_shards = model.moe.experts_per_token, np.where(v.etp > 1, 1.0, v.tp)
    size = activation / token_shards * model.moe_layers / model.layers
    nodes = np.maximum(v.ep * v.etp / cluster.gpus_per_node, 1.0)
    rank_copies, node_copies = (
        (float(experts_per_token), float(experts_per_token))
        if stack.dispatch == "choices"
        else (_expected_groups(v.ep, experts_per_token), _expected_groups(nodes, experts_per_token))
    )
    intra_seconds = size * rank_copies * (v.ep - 1) / v.ep / cluster.intra.bytes_per_second
    inter_seconds = size * node_copies * (nodes - 1) / nodes / cluster.inter.bytes_per_second
    hops = np.minimum(v.ep - 1, 2 * np.log2(np.maximum(v.ep, 1.0)))
    seconds = np.maximum(intra_seconds, inter_seconds) + hops * groups.expert.hop_seconds
    return np.where(v.ep > 1, seconds, 0.0) * (4 + 2 * repeated)


def _expected_groups(groups: Floats, experts_per_token: int) -> Floats:
    """Expected number of groups with at least one of a token's ``experts_per_token`` experts, if all experts are divided into
    ``groups`` equal groups.
    """
    return groups * (1 - (1 - 1 / groups) ** experts_per_token)


def _transfer_seconds(cluster: Cluster, activation: Floats, v: View) -> Floats:
    """Seconds of one activation transfer between stages; some neighbour is on another node unless one node holds all stages. The
    ranks of a stage on one node send at once; they share its ports if a pair is faster than a device's share of the line rate.
    """
    stride = np.where(v.replicas_outermost, 1.0, v.dp_replicate) * v.fsdp_ranks * v.tp
    within_node, inter = v.pp * stride <= cluster.gpus_per_node, cluster.inter
    shared_rate = inter.bytes_per_second * np.maximum(cluster.gpus_per_node / stride, 1.0)
    fits_port = inter.pair_bytes_per_second <= (inter.line_bytes_per_second or 0.0)
    inter_rate = inter.pair_bytes_per_second if fits_port else np.minimum(inter.pair_bytes_per_second, shared_rate)
    pair_rate = np.where(within_node, cluster.intra.pair_bytes_per_second, inter_rate)
    latency = np.where(within_node, cluster.intra.latency_seconds, cluster.inter.latency_seconds)
    return np.where(v.pp > 1, activation / v.activation_shards / pair_rate + latency, 0.0)


def _head_seconds(tensor: Group, model: ModelShape, activation: Floats, v: View, c: float) -> Floats:
    """Seconds of the head's collectives: its input forward, and that gradient backward; logits are gathered unless the loss is
    parallel.
    """
    logits = tensor.gather(v.tokens * model.vocab_size * c)
    return tensor.reduce(activation) + np.where(v.loss_parallel, 0.0, logits)
