# strategist plan 2149681d023c: tiny on 4xcpu
# 16 sequences of 128 tokens a step, fp32, adamw
# expected: 98.7 ms a step, 20,751 tokens/s, 35.2 MiB of 1.8 GiB a device

import argparse
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

MODEL = "tiny"
LAYERS = 4
HIDDEN_SIZE = 128
HEADS = 8
KV_HEADS = 4
HEAD_SIZE = 16
FFN_SIZE = 384
VOCAB_SIZE = 512
ROPE_THETA = 10000.0
NORM_EPSILON = 1e-05
QKV_BIAS = False
SEQ_LEN = 128
PRECISION = "fp32"
OPTIMIZER = "adamw"
PP = 1  # pp 1: PP-002: Sharding over all devices leaves half of each free, without a bubble.
DP_REPLICATE = 1
DP_SHARD = 2  # dp_shard 2
CP = 1  # cp 1: CP-001: Sequences of under 8192 tokens fit a device and compute too little to hide the exchange of keys and values.
TP = 2  # tp 2
MICRO_BATCH = 8  # micro_batch 8
OPTIMIZER_KERNEL = "fused"  # optimizer_kernel fused: OPT-002: One kernel updates parameter and moments together; one for each operation passes over them about ten times.
RESHARD_AFTER_FORWARD = False  # reshard_after_forward false: FSDP-002: All links are equal, so a subgroup holds more memory and saves little traffic.
RESHARD_ROOT = False
OFFLOAD = "none"  # offload none: OFF-001: A rank's share of the state, with the layer inputs of one sequence, its logits and their gradient, takes less than half the device.
PIN_MEMORY = True
SEQUENCE_PARALLEL = True  # sequence_parallel true: TP-001: A reduce-scatter and an all-gather move what one all-reduce moves, and norms and residuals take 1/tp of the memory.
LOSS_PARALLEL = True  # loss_parallel true
REDUCE_DTYPE = "fp32"
ACCUMULATION = 1
DEVICE = "cpu"

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
GLOBAL_BATCH = DP_REPLICATE * DP_SHARD * MICRO_BATCH * ACCUMULATION


# ---- the model: a decoder like Llama's (arXiv 2302.13971) ----


def rotary(positions):
    """Cosines and sines of rotary positions, [tokens, HEAD_SIZE / 2] each (arXiv 2104.09864)."""
    frequencies = ROPE_THETA ** -(torch.arange(0, HEAD_SIZE, 2, device=positions.device, dtype=torch.float32) / HEAD_SIZE)
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

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (-1, HEAD_SIZE)) for part in (self.query(x), self.key(x), self.value(x)))
        cos, sin = rotary(torch.arange(x.shape[1], device=query.device))
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1])
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202), ``width`` elements wide inside."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.up = nn.Linear(HIDDEN_SIZE, width, bias=False)
        self.down = nn.Linear(width, HIDDEN_SIZE, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.attention = Attention()
        self.feed_forward_norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON)
        self.feed_forward = FeedForward(FFN_SIZE)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """The layers from ``first`` up to ``last``; embedding and head where the model begins and ends. Names are the whole model's."""

    def __init__(self, first=0, last=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE) if first == 0 else None
        self.layers = nn.ModuleDict({str(index): Layer() for index in range(first, last)})
        self.norm = nn.RMSNorm(HIDDEN_SIZE, eps=NORM_EPSILON) if last == LAYERS else None
        self.head = nn.Linear(HIDDEN_SIZE, VOCAB_SIZE, bias=False) if last == LAYERS else None

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(self.norm(x))


# ---- the plan, applied to one part of the model, always in this order ----


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
            "feed_forward": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=between),
        }
        if SEQUENCE_PARALLEL:
            styles |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        parallelize_module(layer, mesh, styles)


def apply_fsdp(part, meshes):
    """Each layer is gathered by itself, then embedding, last norm and head together (arXiv 2304.11277)."""
    mesh = meshes["data"]
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[PRECISION], reduce_dtype=DTYPES[REDUCE_DTYPE])
    offload = CPUOffloadPolicy(pin_memory=PIN_MEMORY and DEVICE == "cuda") if OFFLOAD == "all" else OffloadPolicy()
    how = {"mp_policy": policy, "offload_policy": offload}
    for layer in part.layers.values():
        fully_shard(layer, mesh=mesh, **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(part, mesh=mesh, **how, reshard_after_forward=RESHARD_ROOT)


def parallelized(first, last, meshes, device):
    """The layers from ``first`` up to ``last`` as this rank trains them, with their first weights."""
    with torch.device("meta"):
        part = Decoder(first, last)
    apply_tensor_parallel(part, meshes["tp"])
    apply_fsdp(part, meshes)
    part.to_empty(device="cpu" if OFFLOAD == "all" else device)
    for module in part.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)
    return part


def make_meshes():
    """One mesh of all ranks, the fastest links last; ``data`` is what FSDP2 gets: shards, or replicas of shards."""
    names = ("pp", "dp_replicate", "dp_shard", "tp")
    world = init_device_mesh(DEVICE, (PP, DP_REPLICATE, DP_SHARD * CP, TP), mesh_dim_names=names)
    data = world["dp_replicate", "dp_shard"] if DP_REPLICATE > 1 else world["dp_shard"]
    meshes = {"world": world, "pp": world["pp"], "tp": world["tp"], "data": data}
    return meshes


# ---- a step ----


def loss_of(logits, targets):
    """Cross-entropy, its mean over the tokens of a micro-batch divided by how many of them a step has."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION


def value(loss):
    """The number alone, whole on each rank."""
    if isinstance(loss, DTensor):
        loss = loss.full_tensor()
    return loss.detach()


class Steps:
    """The whole model, micro-batch after micro-batch."""

    def __init__(self, meshes, device):
        self.parts, self.last = [parallelized(0, LAYERS, meshes, device)], True

    def run(self, tokens, targets):
        """Forward and backward of all micro-batches; their mean loss."""
        [part] = self.parts
        total = torch.zeros((), device=tokens.device)
        for index, (micro_batch, target) in enumerate(zip(tokens.split(MICRO_BATCH), targets.split(MICRO_BATCH), strict=True)):
            loss = loss_of(part(micro_batch), target)
            loss.backward()
            total += value(loss)
        return total


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
    learning = part.parameters()
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--data", help="a file of token numbers, 32 bits each (default: synthetic ones)")
    parser.add_argument("--save", help="writes a checkpoint into this folder at the end")
    parser.add_argument("--resume", help="starts from a checkpoint, of this plan or another one")
    options = parser.parse_args()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device(DEVICE, local_rank) if DEVICE == "cuda" else torch.device(DEVICE)
    if DEVICE == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    meshes = make_meshes()
    step_of = Steps(meshes, device)
    parts, optimizers = step_of.parts, [optimizer_of(part) for part in step_of.parts]
    if options.resume:
        resume(options.resume, parts, optimizers)
    coordinate = meshes["world"].get_coordinate()
    data_rank = coordinate[1] * DP_SHARD + coordinate[2] // CP
    data = None
    if options.data:
        data = torch.from_file(options.data, size=os.path.getsize(options.data) // 4, dtype=torch.int32)
    for step in range(options.steps):
        begun = time.perf_counter()
        rows = rows_of(step, data_rank, data, device)
        tokens, targets = rows[:, :-1], rows[:, 1:]
        with loss_parallel() if LOSS_PARALLEL else nullcontext():
            loss = step_of.run(tokens, targets)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
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
