import argparse
import math
import os
import time
from collections import Counter
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

# constants: begin
PP, DP_REPLICATE, DP_SHARD, CP, TP, EP = 2, 1, 1, 1, 2, 1
MICRO_BATCH, ACCUMULATION, SEQ_LEN = 1, 2, 64
LAYERS, HIDDEN_SIZE, HEADS, KV_HEADS, HEAD_SIZE, FFN_SIZE, VOCAB_SIZE = 4, 64, 4, 2, 16, 128, 512
ROPE_THETA, NORM_EPSILON, TIED_EMBEDDINGS, QKV_BIAS, QK_NORM = 10000.0, 1e-5, False, False, False
ROPE_SCALING = None
EXPERTS, EXPERTS_PER_TOKEN, EXPERT_FFN_SIZE, SHARED_EXPERTS, FIRST_DENSE_LAYERS = 8, 2, 64, 1, 1
ROUTER_PARAMETER_BIAS, ROUTER_SCORE, ROUTER_NORMALISED, ROUTER_GROUPS, ROUTER_GROUPS_PER_TOKEN = False, "softmax", True, 1, 1
ROUTER_BALANCE_BIAS, ROUTED_SCALE, BALANCE_COEFFICIENT, TOKEN_ALIGNMENT = False, 1.0, 0.001, 8
PRECISION, REDUCE_DTYPE = "bf16", "fp32"
OPTIMIZER, OPTIMIZER_KERNEL, LORA_RANK = "adamw", "foreach", 16
RESHARD_AFTER_FORWARD, RESHARD_ROOT, POSTPONE_GRADIENT_SYNC = True, False, True
RECOMPUTE, SAVED_OPERATIONS = "selective", "matmul+attention"
OFFLOAD, PIN_MEMORY = "none", True
SEQUENCE_PARALLEL, LOSS_PARALLEL = True, True
PP_SCHEDULE, PP_VIRTUAL_STAGES, PP_LAYERS = "1f1b", 1, (2, 2)
CP_ATTENTION, CP_ROTATE, CP_LOAD_BALANCE = "sdpa", "allgather", "head_tail"
COMPILE, FULLGRAPH = False, False
BUCKET_CAP_MB, GRADIENT_AS_BUCKET_VIEW, STATIC_GRAPH = 25, False, False
DEVICE = "cpu"
# constants: end

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# if: lora
LORA_ALPHA = 16
# end: lora
GLOBAL_BATCH = DP_REPLICATE * DP_SHARD * MICRO_BATCH * ACCUMULATION


# ---- the model: a decoder like Llama's (arXiv 2302.13971) ----


def rotary(positions):
    """Cosines and sines of rotary positions, [tokens, HEAD_SIZE / 2] each (arXiv 2104.09864)."""
    frequencies = ROPE_THETA ** -(torch.arange(0, HEAD_SIZE, 2, device=positions.device, dtype=torch.float32) / HEAD_SIZE)
    # if: rope_scaling
    turns = ROPE_SCALING["original_positions"] * frequencies / (2 * math.pi)
    low, high = ROPE_SCALING["low_frequency"], ROPE_SCALING["high_frequency"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    frequencies = kept * frequencies + (1 - kept) * frequencies / ROPE_SCALING["factor"]
    # end: rope_scaling
    angles = torch.outer(positions.float(), frequencies)
    return angles.cos(), angles.sin()


def turned(x, cos, sin):
    """``x`` [B, T, heads, HEAD_SIZE] with each pair (i, i + HEAD_SIZE / 2) turned by its position's angle."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention over the heads of this rank."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN_SIZE, HEADS * HEAD_SIZE, bias=QKV_BIAS)
        self.key = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=QKV_BIAS)
        self.value = nn.Linear(HIDDEN_SIZE, KV_HEADS * HEAD_SIZE, bias=QKV_BIAS)
        self.output = nn.Linear(HEADS * HEAD_SIZE, HIDDEN_SIZE, bias=False)
        # if: qk_norm
        self.query_norm = nn.RMSNorm(HEAD_SIZE, eps=NORM_EPSILON) if QK_NORM else nn.Identity()
        self.key_norm = nn.RMSNorm(HEAD_SIZE, eps=NORM_EPSILON) if QK_NORM else nn.Identity()
        # end: qk_norm

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (-1, HEAD_SIZE)) for part in (self.query(x), self.key(x), self.value(x)))
        # if: qk_norm
        query, key = self.query_norm(query), self.key_norm(key)
        # end: qk_norm
        # if: cp
        cos, sin = rotary(self.positions)
        # end: cp
        # if: not cp
        cos, sin = rotary(torch.arange(x.shape[1], device=query.device))
        # end: not cp
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        # if: gathers
        mixed = self.attend(query, key, value)
        # end: gathers
        # if: not gathers
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1])
        # end: not gathers
        return self.output(mixed.transpose(1, 2).flatten(2))


# if: feed_forward
class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202), ``width`` elements wide inside."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.up = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.down = nn.Linear(width, HIDDEN_SIZE, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


# end: feed_forward
# if: moe
class Experts(nn.Module):
    """Feed-forwards of the routed experts, their matrices stacked."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.empty(EXPERTS, EXPERT_FFN_SIZE, HIDDEN_SIZE))
        self.up = nn.Parameter(torch.empty(EXPERTS, EXPERT_FFN_SIZE, HIDDEN_SIZE))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN_SIZE, EXPERT_FFN_SIZE))

    def forward(self, rows, counts):
        """``rows`` [M, HIDDEN_SIZE] of the first expert, the second, ...; ``counts`` of each."""
        weights = (self.gate, self.up, self.down)
        # if: ep
        weights = (weight.to_local() for weight in weights)
        # end: ep
        # if: grouped
        # if: not fsdp
        rows, *weights = (part.to(DTYPES[PRECISION]) for part in (rows, *weights))
        # end: not fsdp
        gate, up, down = (weight.transpose(1, 2) for weight in weights)
        wanted = (counts.clamp(min=1) + TOKEN_ALIGNMENT - 1) // TOKEN_ALIGNMENT * TOKEN_ALIGNMENT  # with zeros between
        ends = wanted.cumsum(0, dtype=torch.int32)
        moved = (ends - wanted) - (counts.cumsum(0) - counts)  # by how much the rows of each expert
        places = torch.arange(len(rows), device=rows.device) + moved.repeat_interleave(counts)
        rows = rows.new_zeros(int(ends[-1]), HIDDEN_SIZE).index_copy(0, places, rows)
        inside = F.silu(F.grouped_mm(rows, gate, offs=ends)) * F.grouped_mm(rows, up, offs=ends)
        return F.grouped_mm(inside, down, offs=ends)[places]
        # end: grouped
        # if: not grouped
        each = zip(rows.split(counts.tolist()), *weights, strict=True)
        return torch.cat([F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down) for part, gate, up, down in each])
        # end: not grouped


# if: balance
class AlsoLoss(torch.autograd.Function):
    """``x`` as it is; backward, ``loss`` has a gradient as if it had been added to the step's loss."""

    @staticmethod
    def forward(context, x, loss):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient, gradient.new_ones(())


# end: balance
class MixtureOfExperts(nn.Module):
    """Each token visits EXPERTS_PER_TOKEN of the EXPERTS (arXiv 1701.06538)."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN_SIZE, EXPERTS, bias=ROUTER_PARAMETER_BIAS)
        # if: balance_bias
        self.register_buffer("balance_bias", torch.zeros(EXPERTS) if ROUTER_BALANCE_BIAS else None)  # steers the choice only
        # end: balance_bias
        self.experts = Experts()
        # if: shared
        self.shared = FeedForward(SHARED_EXPERTS * EXPERT_FFN_SIZE)  # which every token visits
        # end: shared

    def forward(self, x):
        tokens = x.flatten(0, 1)
        scores = self.router(tokens).float().unflatten(0, x.shape[:2])
        scores = scores.softmax(-1) if ROUTER_SCORE == "softmax" else scores.sigmoid()
        # if: groups and balance_bias
        chosen = of_best_groups(scores + self.balance_bias.to(x.device)).topk(EXPERTS_PER_TOKEN, sorted=False).indices
        # end: groups and balance_bias
        # if: not groups
        chosen = scores.topk(EXPERTS_PER_TOKEN, sorted=False).indices
        # end: not groups
        # if: groups and not balance_bias
        chosen = of_best_groups(scores).topk(EXPERTS_PER_TOKEN, sorted=False).indices
        # end: groups and not balance_bias
        weights = scores.gather(-1, chosen)
        if ROUTER_NORMALISED:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        # if: balance
        weights = AlsoLoss.apply(weights, BALANCE_COEFFICIENT / (ACCUMULATION * TP) * self.unbalance(scores, chosen))
        # end: balance
        # if: scaled
        weights = weights * ROUTED_SCALE
        # end: scaled
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        order = chosen.flatten().argsort(stable=True)  # of visits, by expert
        rows = tokens[order // EXPERTS_PER_TOKEN]
        # if: ep
        # Rows go to the ranks of their experts, and home again; how many there are of each goes first (arXiv 2006.16668).
        coming = all_to_all_single(counts, None, None, self.group).view(EP, -1)  # from each rank, to each expert here
        sent, received = counts.view(EP, -1).sum(1).tolist(), coming.sum(1).tolist()
        rows = all_to_all_single_autograd(rows, received, sent, self.group)
        experts = torch.arange(EXPERTS // EP, device=x.device).repeat(EP)
        arrived = experts.repeat_interleave(coming.flatten()).argsort(stable=True)
        results = self.experts(rows[arrived], coming.sum(0))
        results = all_to_all_single_autograd(results[arrived.argsort()], sent, received, self.group)
        # end: ep
        # if: not ep
        results = self.experts(rows, counts)
        # end: not ep
        results = results[order.argsort()].unflatten(0, chosen.shape) * weights.unsqueeze(-1).to(x.dtype)
        # if: shared
        return results.sum(-2) + self.shared(tokens).view_as(x)
        # end: shared
        # if: not shared
        return results.sum(-2)
        # end: not shared

    # if: balance
    def unbalance(self, scores, chosen):
        """The auxiliary loss of each sequence (arXiv 2412.19437, section 2.1.2), their mean: 1 if all experts are visited alike."""
        visits = torch.zeros_like(scores).scatter(-1, chosen, 1.0).sum(1)
        # if: shared_sequences
        for group in self.sequence_groups:  # of the ranks that have other tokens of the same sequences
            dist.all_reduce(visits, group=group)
        # end: shared_sequences
        likely = (scores / scores.sum(-1, keepdim=True)).mean(1)
        return (visits * EXPERTS / (EXPERTS_PER_TOKEN * SEQ_LEN) * likely).sum(-1).mean()

    # end: balance


# if: groups
def of_best_groups(scores):
    """Scores of the experts in the best groups; a group is as good as its two best experts together (arXiv 2412.19437)."""
    grouped = scores.detach().unflatten(-1, (ROUTER_GROUPS, -1))
    best = grouped.topk(min(2, grouped.shape[-1])).values.sum(-1).topk(ROUTER_GROUPS_PER_TOKEN).indices
    barred = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best, False)
    return grouped.masked_fill(barred.unsqueeze(-1), -torch.inf).flatten(-2)


# end: groups
def mixtures(part):
    return [module for module in part.modules() if isinstance(module, MixtureOfExperts)]


# end: moe
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.attention = Attention()
        self.feed_forward_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        # if: not moe
        self.feed_forward = FeedForward(FFN_SIZE)
        # end: not moe
        # if: moe
        self.feed_forward = MixtureOfExperts()
        # end: moe

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """The layers from ``first`` up to ``last``; embedding and head where the model begins and ends. Names are the whole model's."""

    def __init__(self, first=0, last=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE) if first == 0 else None
        self.layers = nn.ModuleDict({str(index): Layer() for index in range(first, last)})
        # if: dense_first
        for index in range(first, min(last, FIRST_DENSE_LAYERS)):
            self.layers[str(index)].feed_forward = FeedForward(FFN_SIZE)
        # end: dense_first
        self.norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON) if last == LAYERS else None
        self.head = nn.Linear(HIDDEN_SIZE, VOCAB_SIZE, bias=False) if last == LAYERS else None
        # if: tied
        if TIED_EMBEDDINGS:
            self.head.weight = self.embedding.weight
        # end: tied

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


# ---- the plan, applied to one part of the model, always in this order ----


# if: lora
class Adapted(nn.Linear):
    """``x W^T + LORA_ALPHA / LORA_RANK (x A^T) B^T``, of which A and B learn (arXiv 2106.09685)."""

    def __init__(self, linear):
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.lora_a = nn.Parameter(torch.empty(LORA_RANK, linear.in_features))
        self.lora_b = nn.Parameter(torch.empty(linear.out_features, LORA_RANK))

    def forward(self, x):
        inside = F.linear(x, self.lora_a.to(x.dtype)) * (LORA_ALPHA / LORA_RANK)
        return super().forward(x) + F.linear(inside, self.lora_b.to(x.dtype))


def apply_lora(part):
    """Adapts the linears of attention and feed-forwards; everything else is frozen, and kept as it is computed with."""
    # if: feed_forward
    blocks = [module for module in part.modules() if isinstance(module, Attention | FeedForward)]
    # end: feed_forward
    # if: not feed_forward
    blocks = [module for module in part.modules() if isinstance(module, Attention)]
    # end: not feed_forward
    for block in blocks:
        for name, module in list(block.named_children()):
            if isinstance(module, nn.Linear):
                with torch.device("meta"):
                    setattr(block, name, Adapted(module))
    for name, parameter in part.named_parameters():
        if not name.endswith(("lora_a", "lora_b")):
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(DTYPES[PRECISION])


# end: lora
# if: tp
def apply_tensor_parallel(part, mesh):
    """Columns then rows of each pair of matmuls (arXiv 1909.08053); SEQUENCE_PARALLEL cuts what lies between (arXiv 2205.05198)."""
    between = Shard(1) if SEQUENCE_PARALLEL else Replicate()
    outside = {}
    if part.embedding is not None:
        outside["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if part.head is not None:
        logits = Shard(-1) if LOSS_PARALLEL else Replicate()
        outside["head"] = ColwiseParallel(input_layouts=between, output_layouts=logits, use_local_output=not LOSS_PARALLEL)
        if SEQUENCE_PARALLEL:
            outside["norm"] = SequenceParallel()
    parallelize_module(part, mesh, outside)
    for layer in part.layers.values():
        styles = {
            "attention": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.output": RowwiseParallel(output_layouts=between),
            # if: not moe
            "feed_forward": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=between),
            # end: not moe
        }
        # if: dense_first
        if isinstance(layer.feed_forward, FeedForward):
            styles |= {
                "feed_forward": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
                "feed_forward.gate": ColwiseParallel(),
                "feed_forward.up": ColwiseParallel(),
                "feed_forward.down": RowwiseParallel(output_layouts=between),
            }
        # end: dense_first
        # if: moe
        if isinstance(layer.feed_forward, MixtureOfExperts):  # each rank has a part of every sequence here
            own = SequenceParallel(sequence_dim=0, use_local_output=True)  # of rows, tokens of all sequences
            styles |= {
                "feed_forward": PrepareModuleInputOutput(
                    input_layouts=(between,),
                    desired_input_layouts=(Shard(1),),
                    use_local_input=True,
                    output_layouts=(Shard(1),),
                    desired_output_layouts=(between,),
                ),
                "feed_forward.router": own,
                # if: shared
                "feed_forward.shared.gate": own,
                "feed_forward.shared.up": own,
                "feed_forward.shared.down": own,
                # end: shared
            }
        # end: moe
        # if: qk_norm
        heads = SequenceParallel(sequence_dim=2, use_local_output=True)  # each rank's heads, with the same weights
        styles |= {"attention.query_norm": heads, "attention.key_norm": heads}
        # end: qk_norm
        if SEQUENCE_PARALLEL:
            styles |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        parallelize_module(layer, mesh, styles)


# end: tp
# if: dealt
def apply_expert_parallel(part, meshes):
    """Each of EP ranks holds EXPERTS / EP of a layer's experts."""
    for mixture in mixtures(part):
        # if: shared_sequences
        mixture.sequence_groups = [meshes[name].get_group() for name in ("cp", "tp") if name in meshes and meshes[name].size() > 1]
        # end: shared_sequences
        # if: ep
        mixture.group = meshes["ep"].get_group()
        for name, parameter in list(mixture.experts.named_parameters()):
            mixture.experts.register_parameter(name, nn.Parameter(distribute_tensor(parameter, meshes["ep"], [Shard(0)])))
        # end: ep


# end: dealt
# if: cp
def slices_of_context(device):
    """Positions of the tokens of each context rank: slices of head and tail, so that under a causal mask all have equal work."""
    if CP_LOAD_BALANCE == "none":
        return torch.arange(SEQ_LEN, device=device).chunk(CP)
    slices = torch.arange(SEQ_LEN, device=device).chunk(2 * CP)
    return [torch.cat((slices[rank], slices[-1 - rank])) for rank in range(CP)]


# if: gathers
class GatheredAttention:
    """Own queries, [B, heads, tokens, HEAD_SIZE], and the keys and values of all context ranks (arXiv 2407.21783)."""

    def __init__(self, slices, mesh):
        self.mesh, own, all_tokens = mesh, slices[mesh.get_local_rank()], torch.cat(list(slices))
        # if: cuda

        def causal(batch, head, query, key):
            return own[query] >= all_tokens[key]

        self.mask = create_block_mask(causal, None, None, len(own), len(all_tokens), device=own.device)
        # end: cuda
        # if: not cuda
        self.mask = own[:, None] >= all_tokens
        # end: not cuda

    def __call__(self, query, key, value):
        key, value = (DTensor.from_local(part, self.mesh, [Shard(2)], run_check=False) for part in (key, value))
        key, value = (part.full_tensor(grad_placements=[Partial()]) for part in (key, value))
        grouped = query.shape[1] != key.shape[1]
        # if: cuda
        return FLEX_ATTENTION(query, key, value, block_mask=self.mask, enable_gqa=grouped)
        # end: cuda
        # if: not cuda
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask, enable_gqa=grouped)
        # end: not cuda


# if: cuda
FLEX_ATTENTION = torch.compile(flex_attention, dynamic=False)


# end: cuda
# end: gathers
def apply_context_parallel(part, mesh, device):
    """Each rank has a slice of every sequence."""
    slices = slices_of_context(device)
    # if: gathers
    attend = GatheredAttention(slices, mesh)
    # end: gathers
    for layer in part.layers.values():
        layer.attention.positions = slices[mesh.get_local_rank()]
        # if: gathers
        layer.attention.attend = attend
        # end: gathers


# end: cp
# if: selective
MATMULS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default}
ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}
COLLECTIVES = {torch.ops._c10d_functional.all_reduce.default, torch.ops._c10d_functional.reduce_scatter_tensor.default}
# if: moe
MATMULS |= {torch.ops.aten._grouped_mm.default}
ATTENTION |= {torch.ops.aten.topk.default}  # no token may change its mind
# end: moe
# if: ep
COLLECTIVES |= {torch.ops._c10d_functional.all_to_all_single.default}
# end: ep
SAVED = SAVED_OPERATIONS.split("+")


def saving():
    """Contexts of one layer that keep the outputs of SAVED_OPERATIONS and compute the rest again (arXiv 2205.05198)."""
    matmuls = Counter()

    def policy(context, operation, *args, **kwargs):
        if operation in MATMULS:
            matmuls[context.is_recompute] += 1
            kept = "matmul" in SAVED or ("every_second_matmul" in SAVED and matmuls[context.is_recompute] % 2 == 1)
        else:
            kept = operation in ATTENTION or ("collectives" in SAVED and operation in COLLECTIVES)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


# end: selective
# if: recompute
def apply_recompute(part):
    """Activation checkpointing, layer by layer (arXiv 1604.06174)."""
    for index, layer in part.layers.items():
        if RECOMPUTE == "alternate" and int(index) % 2:
            continue
        contexts = {}
        # if: selective
        if RECOMPUTE == "selective":
            contexts["context_fn"] = saving
        # end: selective
        part.layers[index] = checkpoint_wrapper(layer, preserve_rng_state=False, **contexts)


# end: recompute
# if: fsdp
def apply_fsdp(part, meshes):
    """Each layer is gathered by itself, then embedding, last norm and head together (arXiv 2304.11277)."""
    mesh = meshes["data"]
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[PRECISION], reduce_dtype=DTYPES[REDUCE_DTYPE])
    offload = CPUOffloadPolicy(pin_memory=PIN_MEMORY and DEVICE == "cuda") if OFFLOAD == "all" else OffloadPolicy()
    how = {"mp_policy": policy, "offload_policy": offload}
    # if: apart
    for mixture in mixtures(part):
        experts = {"mesh": meshes["experts"], "shard_placement_fn": lambda parameter: Shard(1)}  # a part of each expert
        fully_shard(mixture.experts, **experts, **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    # end: apart
    for layer in part.layers.values():
        fully_shard(layer, mesh=mesh, **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(part, mesh=mesh, **how, reshard_after_forward=RESHARD_ROOT)


# end: fsdp
def parallelized(first, last, meshes, device):
    """The layers from ``first`` up to ``last`` as this rank trains them, with their first weights."""
    with torch.device("meta"):
        part = Decoder(first, last)
    # if: tp
    apply_tensor_parallel(part, meshes["tp"])
    # end: tp
    # if: dealt
    apply_expert_parallel(part, meshes)
    # end: dealt
    # if: cp
    apply_context_parallel(part, meshes["cp"], device)
    # end: cp
    # if: lora
    apply_lora(part)
    # end: lora
    # if: recompute
    apply_recompute(part)
    # end: recompute
    # if: compile
    for layer in part.layers.values() if COMPILE else ():
        # if: not moe
        layer.compile(fullgraph=FULLGRAPH)
        # end: not moe
        # if: moe
        layer.attention.compile(fullgraph=FULLGRAPH)  # how many rows an expert gets, no graph can know
        # end: moe
    # end: compile
    # if: fsdp
    apply_fsdp(part, meshes)
    # end: fsdp
    # if: tied
    if TIED_EMBEDDINGS:
        part.head.weight = part.embedding.weight
    # end: tied
    part.to_empty(device="cpu" if OFFLOAD == "all" else device)
    for module in part.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
            # if: lora
            if isinstance(module, Adapted):
                nn.init.kaiming_uniform_(module.lora_a, a=math.sqrt(5))
                nn.init.zeros_(module.lora_b)
            # end: lora
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)
        # if: moe
        elif isinstance(module, Experts):
            for parameter in module.parameters():
                nn.init.normal_(parameter, std=0.02)
        # end: moe
        # if: balance_bias
        elif isinstance(module, MixtureOfExperts):
            nn.init.zeros_(module.balance_bias)
        # end: balance_bias
    # if: not fsdp and not lora
    part.forward = torch.autocast(DEVICE, dtype=DTYPES[PRECISION], enabled=PRECISION != "fp32")(part.forward)
    # end: not fsdp and not lora
    # if: ddp
    buckets = {"bucket_cap_mb": BUCKET_CAP_MB, "gradient_as_bucket_view": GRADIENT_AS_BUCKET_VIEW}
    return DistributedDataParallel(part, static_graph=STATIC_GRAPH, **buckets)
    # end: ddp
    # if: not ddp
    return part
    # end: not ddp


def make_meshes():
    """One mesh of all ranks, the fastest links last; ``data`` is what FSDP2 gets: shards, or replicas of shards."""
    names = ("pp", "dp_replicate", "dp_shard", "tp")
    world = init_device_mesh(DEVICE, (PP, DP_REPLICATE, DP_SHARD * CP, TP), mesh_dim_names=names)
    data = world["dp_replicate", "dp_shard"] if DP_REPLICATE > 1 else world["dp_shard"]
    meshes = {"world": world, "pp": world["pp"], "tp": world["tp"], "data": data}
    # if: cp
    # of neighbours in dp_shard, each of which holds shards of its own
    outside = PP * DP_REPLICATE * DP_SHARD
    meshes["cp"] = init_device_mesh(DEVICE, (outside, CP, TP), mesh_dim_names=("outside", "cp", "inside"))["cp"]
    # end: cp
    # if: apart
    # Experts unfold from dp_shard x cp x tp: EP ranks share them out, and those that are left cut them.
    shards = DP_SHARD * CP * TP // EP
    own = {"ep": "nccl" if DEVICE == "cuda" else "gloo"}  # so that exchanges do not wait for gathers
    names = ("pp", "dp_replicate", "experts", "ep")
    of_experts = init_device_mesh(DEVICE, (PP, DP_REPLICATE, shards, EP), mesh_dim_names=names, backend_override=own)
    meshes["ep"] = of_experts["ep"]
    meshes["experts"] = of_experts["dp_replicate", "experts"] if DP_REPLICATE > 1 else of_experts["experts"]
    # end: apart
    return meshes


# ---- a step ----


# if: fp16
SCALER = ShardedGradScaler(DEVICE)  # of the loss, so that small gradients do not become 0 (arXiv 1710.03740, section 3.2)
# end: fp16


def loss_of(logits, targets):
    """Cross-entropy, its mean over the tokens of a micro-batch divided by how many of them a step has."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION


# if: fp16 and pp
def scaled_loss_of(logits, targets):
    return SCALER.scale(loss_of(logits, targets))


# end: fp16 and pp
def value(loss):
    """The number alone, whole on each rank."""
    # if: tp
    if isinstance(loss, DTensor):
        loss = loss.full_tensor()
    # end: tp
    return loss.detach()


# if: pp
class Pipeline:
    """The stages of this rank and their schedule."""

    def __init__(self, meshes, device):
        count, rank = PP * PP_VIRTUAL_STAGES, meshes["pp"].get_local_rank()
        self.numbers = range(rank, count, PP)
        ends = [sum(PP_LAYERS[:stage]) for stage in range(count + 1)]
        self.parts = [parallelized(ends[stage], ends[stage + 1], meshes, device) for stage in self.numbers]
        stages = [
            PipelineStage(part, stage, count, device, group=meshes["pp"].get_group())
            for part, stage in zip(self.parts, self.numbers, strict=True)
        ]
        kind = get_schedule_class(PP_SCHEDULE)
        single = issubclass(kind, PipelineScheduleSingle)
        # if: fp16
        self.schedule = kind(stages[0] if single else stages, ACCUMULATION, loss_fn=scaled_loss_of, scale_grads=False)
        # end: fp16
        # if: not fp16
        self.schedule = kind(stages[0] if single else stages, ACCUMULATION, loss_fn=loss_of, scale_grads=False)
        # end: not fp16
        self.first, self.last = 0 in self.numbers, count - 1 in self.numbers

    def run(self, tokens, targets):
        """Forward and backward of all micro-batches; their mean loss, 0 on ranks without the last stage."""
        losses = []
        compared = {"target": targets, "losses": losses} if self.last else {}
        self.schedule.step(*((tokens,) if self.first else ()), **compared)
        # if: fp16
        losses = [loss / SCALER.get_scale() for loss in losses]
        # end: fp16
        return sum(map(value, losses), torch.zeros((), device=tokens.device))


# end: pp
# if: not pp
class Steps:
    """The whole model, micro-batch after micro-batch."""

    def __init__(self, meshes, device):
        self.parts, self.last = [parallelized(0, LAYERS, meshes, device)], True

    def run(self, tokens, targets):
        """Forward and backward of all micro-batches; their mean loss."""
        [part] = self.parts
        total = torch.zeros((), device=tokens.device)
        for index, (micro_batch, target) in enumerate(zip(tokens.split(MICRO_BATCH), targets.split(MICRO_BATCH), strict=True)):
            # if: fsdp and accumulates
            sync = index == ACCUMULATION - 1 or not POSTPONE_GRADIENT_SYNC
            part.set_requires_gradient_sync(sync)
            part.set_reshard_after_backward(sync or RESHARD_AFTER_FORWARD is not False)
            # end: fsdp and accumulates
            # if: ddp and accumulates
            part.require_backward_grad_sync = index == ACCUMULATION - 1 or not POSTPONE_GRADIENT_SYNC
            # end: ddp and accumulates
            loss = loss_of(part(micro_batch), target)
            # if: fp16
            SCALER.scale(loss).backward()
            # end: fp16
            # if: not fp16
            loss.backward()
            # end: not fp16
            total += value(loss)
        return total


# end: not pp
# ---- training ----


def rows_of(step, data_rank, data, device):
    """This data rank's sequences of a step, [sequences, SEQ_LEN + 1]: from a file of token numbers, or synthetic ones."""
    own = MICRO_BATCH * ACCUMULATION
    numbers = [step * GLOBAL_BATCH + data_rank * own + index for index in range(own)]
    if data is not None:
        places = [number * SEQ_LEN % (len(data) - SEQ_LEN - 1) for number in numbers]
        rows = torch.stack([data[place : place + SEQ_LEN + 1].long() for place in places])
    else:
        made = [torch.Generator().manual_seed(number) for number in numbers]
        rows = torch.stack([torch.randint(VOCAB_SIZE, (SEQ_LEN + 1,), generator=generator) for generator in made])
    return rows.to(device)


def optimizer_of(part):
    kernel = {"foreach": False} if OPTIMIZER_KERNEL == "for_loop" else {OPTIMIZER_KERNEL: True}
    # if: lora
    learning = [parameter for parameter in part.parameters() if parameter.requires_grad]
    # end: lora
    # if: not lora
    learning = part.parameters()
    # end: not lora
    if OPTIMIZER == "sgd":
        return torch.optim.SGD(learning, lr=1e-2, **kernel)
    return torch.optim.AdamW(learning, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **kernel)


FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def state_of(parts, optimizers):
    """Everything a checkpoint holds, by names of the whole model: it fits any other plan of the same model as well."""
    state = {"model": {}, "optimizer": {}}
    for part, optimizer in zip(parts, optimizers, strict=True):
        state["model"] |= get_model_state_dict(part)
        state["optimizer"] |= get_optimizer_state_dict(part, optimizer, options=FLAT)
    return state


def resume(folder, parts, optimizers):
    """Brings back what was saved, under this plan or another one."""
    state = state_of(parts, optimizers)
    dcp.load(state, checkpoint_id=folder)
    for part, optimizer in zip(parts, optimizers, strict=True):
        own = get_model_state_dict(part)
        set_model_state_dict(part, {name: state["model"][name] for name in own})
        flat = get_optimizer_state_dict(part, optimizer, options=FLAT)
        set_optimizer_state_dict(part, optimizer, {name: state["optimizer"][name] for name in flat}, options=FLAT)


# if: lora
def load_base(folder, parts):
    """The weights that do not learn, from a checkpoint of the whole model."""
    for part in parts:
        base = {name: value for name, value in get_model_state_dict(part).items() if not name.endswith(("lora_a", "lora_b"))}
        dcp.load({"model": base}, checkpoint_id=folder)
        set_model_state_dict(part, base, options=StateDictOptions(strict=False))


# end: lora
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--data", help="a file of token numbers, 32 bits each (default: synthetic ones)")
    parser.add_argument("--save", help="writes a checkpoint into this folder at the end")
    # if: lora
    parser.add_argument("--base", help="takes frozen weights from the checkpoint of a full training")
    # end: lora
    parser.add_argument("--resume", help="starts from a checkpoint, of this plan or another one")
    options = parser.parse_args()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device(DEVICE, local_rank) if DEVICE == "cuda" else torch.device(DEVICE)
    if DEVICE == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    meshes = make_meshes()
    # if: fp16 and pp
    SCALER.scale(torch.zeros((), device=device))  # a first time, also on ranks without a loss
    # end: fp16 and pp
    # if: pp
    step_of = Pipeline(meshes, device)
    # end: pp
    # if: not pp
    step_of = Steps(meshes, device)
    # end: not pp
    parts, optimizers = step_of.parts, [optimizer_of(part) for part in step_of.parts]
    # if: lora
    if options.base:
        load_base(options.base, parts)
    # end: lora
    if options.resume:
        resume(options.resume, parts, optimizers)
    coordinate = meshes["world"].get_coordinate()
    data_rank = coordinate[1] * DP_SHARD + coordinate[2] // CP
    # if: gathers
    positions = slices_of_context(device)[meshes["cp"].get_local_rank()]
    # end: gathers
    # if: ring
    set_rotate_method(CP_ROTATE)
    # end: ring
    data = None
    if options.data:
        data = torch.from_file(options.data, size=os.path.getsize(options.data) // 4, dtype=torch.int32)
    for step in range(options.steps):
        begun = time.perf_counter()
        rows = rows_of(step, data_rank, data, device)
        tokens, targets = rows[:, :-1], rows[:, 1:]
        # if: gathers
        tokens, targets = tokens[:, positions], targets[:, positions]
        # end: gathers
        # if: ring
        tokens, targets = tokens.clone(), targets.clone()  # context_parallel cuts them in place
        cut = {"buffers": [tokens, targets], "buffer_seq_dims": [1, 1], "no_restore_buffers": {tokens, targets}}
        # end: ring
        # if: ring and tp
        with context_parallel(meshes["cp"], **cut), loss_parallel() if LOSS_PARALLEL else nullcontext():
            loss = step_of.run(tokens, targets)
        # end: ring and tp
        # if: ring and not tp
        with context_parallel(meshes["cp"], **cut):
            loss = step_of.run(tokens, targets)
        # end: ring and not tp
        # if: not ring and tp
        with loss_parallel() if LOSS_PARALLEL else nullcontext():
            loss = step_of.run(tokens, targets)
        # end: not ring and tp
        # if: not ring and not tp
        loss = step_of.run(tokens, targets)
        # end: not ring and not tp
        # if: apart and not lora
        for part in parts:
            for mixture in mixtures(part):
                for parameter in mixture.experts.parameters():  # FSDP2 took the mean over TP / EP as many ranks as share data
                    parameter.grad.mul_(TP / EP)
        # end: apart and not lora
        for optimizer in optimizers:
            # if: fp16
            SCALER.unscale_(optimizer)
            SCALER.step(optimizer)  # unless a gradient of any rank has overflowed
            # end: fp16
            # if: not fp16
            optimizer.step()
            # end: not fp16
            optimizer.zero_grad()
        # if: fp16
        SCALER.update()
        # end: fp16
        dist.all_reduce(loss)  # of ranks with the last stage, each TP times; the others have 0
        if rank == 0:
            seconds = time.perf_counter() - begun
            memory = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0.0
            mean = loss.item() / (DP_REPLICATE * DP_SHARD * CP * TP)
            speed = GLOBAL_BATCH * SEQ_LEN / seconds
            print(f"step {step + 1} loss {mean:.6f} tokens/s {speed:,.0f} memory {memory:.2f} GiB", flush=True)
    if options.save:
        dcp.save(state_of(parts, optimizers), checkpoint_id=options.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
