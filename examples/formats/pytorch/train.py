"""Trains the model of model.py with the parallelism of plan.py; train.sh starts it."""

import argparse
import math
import os
import time
from contextlib import ExitStack, nullcontext
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
)

from checkpoint import draw_weights, export_weights, load_weights, local, named, newest, resume, save
from data import Synthetic, Tokens, read_rows
from model import DTYPES, Decoder
from plan import (
    ACCUMULATION, CHECKPOINT_INTERVAL, CLIP_NORM, CP, DEVICE, DP_REPLICATE, DP_SHARD, LAYERS, LEARNING_RATE,
    LOSS_PARALLEL, MICRO_BATCH, OPTIMIZER_KERNEL, PP, PRECISION, REDUCE_DTYPE, RESHARD_AFTER_FORWARD, RESHARD_ROOT,
    SEQUENCE_PARALLEL, SEQ_LEN, TP, WEIGHT_DECAY,
)


def make_meshes():
    """One mesh of all ranks, the fastest links last; FSDP2 gets ``data``: shards, or replicas of shards."""
    names = ("pp", "dp_replicate", "dp_shard", "tp")
    world = init_device_mesh(DEVICE, (PP, DP_REPLICATE, DP_SHARD * CP, TP), mesh_dim_names=names)
    data = world["dp_replicate", "dp_shard"] if DP_REPLICATE > 1 else world["dp_shard"]
    return {"pp": world["pp"], "tp": world["tp"], "data": data}


def apply_tensor_parallel(part, mesh):
    """Matrices in pairs, the first cut by columns, the second by rows (arXiv 1909.08053).

    With SEQUENCE_PARALLEL activations between the pairs are cut by tokens (arXiv 2205.05198)."""
    between = Shard(1) if SEQUENCE_PARALLEL else Replicate()
    styles = {}
    if part.embedding is not None:
        styles["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if part.head is not None:
        logits = Shard(-1) if LOSS_PARALLEL else Replicate()
        styles["head"] = ColwiseParallel(input_layouts=between, output_layouts=logits, use_local_output=not LOSS_PARALLEL)
        if SEQUENCE_PARALLEL:
            styles["norm"] = SequenceParallel()
    parallelize_module(part, mesh, styles)
    whole = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    for layer in part.layers.values():
        styles = {"attention": whole, "attention.output": RowwiseParallel(output_layouts=between)}
        styles |= {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
        styles |= {"feed_forward": whole, "feed_forward.down": RowwiseParallel(output_layouts=between)}
        styles |= {"feed_forward.gate": ColwiseParallel(), "feed_forward.up": ColwiseParallel()}
        if SEQUENCE_PARALLEL:
            styles |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        parallelize_module(layer, mesh, styles)


def apply_fsdp(part, meshes):
    """FSDP2: each layer is gathered by itself; embedding, last norm and head are gathered together (arXiv 2304.11277)."""
    how = {"mp_policy": MixedPrecisionPolicy(param_dtype=DTYPES[PRECISION], reduce_dtype=DTYPES[REDUCE_DTYPE])}
    for layer in part.layers.values():
        fully_shard(layer, mesh=meshes["data"], **how, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(part, mesh=meshes["data"], **how, reshard_after_forward=RESHARD_ROOT)


def build(first, last, meshes, device, weights):
    """Layers ``first`` to ``last - 1`` as this rank trains them, with their first weights."""
    with torch.device("meta"):
        part = Decoder(first, last)
    apply_tensor_parallel(part, meshes["tp"])
    apply_fsdp(part, meshes)
    part.to_empty(device=device)
    draw_weights([part])
    if weights:
        load_weights(weights, [part])
    return part


def loss_of(logits, targets):
    """Cross-entropy, its mean over the tokens of a micro-batch divided by the number of micro-batches of a step."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1)) / ACCUMULATION


def make_stages(meshes, device, weights):
    """The whole model, and the function that runs a step on it."""
    part = build(0, LAYERS, meshes, device, weights)
    return [part], partial(run_micro_batches, part)


def run_micro_batches(part, tokens, targets):
    """Forward and backward passes of all micro-batches; their mean loss."""
    total = torch.zeros((), device=tokens.device)
    pairs = zip(tokens.split(MICRO_BATCH), targets.split(MICRO_BATCH), strict=True)
    for micro_batch, target in pairs:
        loss = loss_of(part(micro_batch), target)
        loss.backward()
        total += local(loss.detach())
    return total


def make_optimizer(parts):
    """Over the parameters that are trained; those on different meshes cannot share a kernel, so they are groups."""
    by_mesh = {}
    for _, parameter in named(parts):
        if parameter.requires_grad:
            by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    groups = [{"params": parameters} for parameters in by_mesh.values()]
    kernel = {"fused": OPTIMIZER_KERNEL == "fused", "foreach": OPTIMIZER_KERNEL == "foreach"}
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **kernel)


def update(parts, optimizer, loss):
    """Clips the whole gradient to CLIP_NORM and takes a step; the mean loss of the step, and the norm before clipping."""
    gradients = [parameter.grad for _, parameter in named(parts) if parameter.grad is not None]
    squares = [torch.linalg.vector_norm(local(gradient), dtype=torch.float32) ** 2 * pieces(gradient) for gradient in gradients]
    # A gradient in n pieces, each on world size / n ranks, is counted n times a piece; a stage has gradients of its own.
    figures = PP * torch.stack((loss, torch.stack(squares).sum().to(loss.device))).double() / dist.get_world_size()
    dist.all_reduce(figures)
    loss, square = figures.tolist()
    norm = math.sqrt(square)
    if not math.isfinite(loss + norm):
        raise SystemExit(f"training diverged: loss {loss}, gradient norm {norm}")
    if norm > CLIP_NORM:
        torch._foreach_mul_([local(gradient) for gradient in gradients], CLIP_NORM / norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss, norm


def pieces(gradient):
    """The number of different pieces of a gradient over all ranks."""
    if isinstance(gradient, DTensor):
        axes = [axis for axis, placement in enumerate(gradient.placements) if not placement.is_replicate()]
        return math.prod(gradient.device_mesh.size(axis) for axis in axes)
    return 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of the whole training (default %(default)s)")
    parser.add_argument("--data", help="token ids: a .bin or .npy file, or a folder of Dataset.save_to_disk (default: synthetic)")
    parser.add_argument("--data-type", help="of a .bin file: uint16, uint32 or int32 (default: by its .json, or the vocabulary)")
    parser.add_argument("--weights", help="a folder of Hugging Face's to begin with (default: random weights)")
    parser.add_argument("--export-weights", help="write such a folder at the end")
    parser.add_argument("--save", help="write checkpoints into this folder, and go on from its newest one")
    parser.add_argument("--save-every", type=int, default=CHECKPOINT_INTERVAL, help="steps between them (default %(default)s)")
    parser.add_argument("--keep", type=int, default=2, help="number of the newest that stay (default %(default)s)")
    parser.add_argument("--resume", help="begin with a checkpoint of any plan of this model, where --save has none")
    return parser.parse_args()


def main():
    options = arguments()
    rank = int(os.environ["RANK"])
    device = torch.device(DEVICE)
    dist.init_process_group("gloo")
    meshes = make_meshes()
    parts, run = make_stages(meshes, device, options.weights)
    optimizer = make_optimizer(parts)
    counts = torch.zeros(2, dtype=torch.int64)  # steps and samples so far
    if begin := newest(options.save) or newest(options.resume):
        resume(begin, parts, optimizer, counts)
    text = Tokens(options.data, options.data_type) if options.data else Synthetic()
    own = MICRO_BATCH * ACCUMULATION
    data_rank = rank // (CP * TP) % (DP_REPLICATE * DP_SHARD)
    for step in range(int(counts[0]), options.steps):
        started = time.perf_counter()
        tokens, targets = (rows.to(device) for rows in read_rows(text, int(counts[1]) + data_rank * own, own))
        with ExitStack() as around:
            around.enter_context(loss_parallel() if LOSS_PARALLEL else nullcontext())
            loss = run(tokens, targets)
        loss, norm = update(parts, optimizer, loss)
        counts += torch.tensor([1, DP_REPLICATE * DP_SHARD * own])
        if rank == 0:
            seconds = time.perf_counter() - started
            speed = DP_REPLICATE * DP_SHARD * own * SEQ_LEN / seconds
            line = f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f} tokens/s {speed:,.0f}"
            print(line, flush=True)
        if options.save and ((step + 1) % options.save_every == 0 or step + 1 == options.steps):
            save(options.save, options.keep, parts, optimizer, counts)
    if options.export_weights:
        export_weights(options.export_weights, parts, options.weights)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # torch 2.13 can wait for ever while it frees what a thread of gloo's still holds


if __name__ == "__main__":
    main()
