"""Trains the model of model.py with the parallelism of plan.py; train.sh starts it."""

import argparse
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
)

from checkpoint import draw_weights, export_weights, hugging_face_state, save, state_of
from data import open_tokens, sample
from model import Decoder
from plan import (
    CHECKPOINT_INTERVAL, CLIP_NORM, GLOBAL_BATCH, LEARNING_RATE, MESH, MICRO_BATCH, PRECISION, REDUCE_DTYPE,
    RESHARD_AFTER_FORWARD, RESHARD_ROOT, SEQ_LEN, TP, WEIGHT_DECAY,
)


def apply_tensor_parallel(part, mesh):
    """The first matrix of each pair is sharded by columns, the second by rows (arXiv 1909.08053)."""
    between = Shard(1)  # activations between the pairs are sharded by tokens (arXiv 2205.05198)
    styles = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between), "norm": SequenceParallel()}
    styles["head"] = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(part, mesh, styles)
    gather_input = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    for layer in part.layers.values():
        columns = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
        styles = {"attention": gather_input, "feed_forward": gather_input, **{name: ColwiseParallel() for name in columns}}
        styles |= {name: RowwiseParallel(output_layouts=between) for name in ("attention.output", "feed_forward.down")}
        styles |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
        parallelize_module(layer, mesh, styles)


def build(meshes, device):
    """The model as this rank trains it, without values."""
    with torch.device("meta"):
        part = Decoder()
    apply_tensor_parallel(part, meshes["tp"])
    fsdp = {"mesh": meshes["dp_shard"], "mp_policy": MixedPrecisionPolicy(getattr(torch, PRECISION), getattr(torch, REDUCE_DTYPE))}
    for layer in part.layers.values():
        fully_shard(layer, **fsdp, reshard_after_forward=RESHARD_AFTER_FORWARD)
    fully_shard(part, **fsdp, reshard_after_forward=RESHARD_ROOT)  # embedding, last norm and head (FSDP2, arXiv 2304.11277)
    return part.to_empty(device=device)


def train_step(model, optimizer, tokens, targets):
    """A pass, and an update by its gradient, clipped to CLIP_NORM; the mean loss, and the norm before."""
    loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten(0, 1))
    loss.backward()
    total = loss.detach().to_local()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM).full_tensor()
    dist.all_reduce(total)
    loss, norm = total.item() / dist.get_world_size(), norm.item()
    if not math.isfinite(loss + norm):
        raise SystemExit(f"training diverged: loss {loss}, gradient norm {norm}")
    optimizer.step()
    optimizer.zero_grad()
    return loss, norm


def main():
    parser = argparse.ArgumentParser(usage="./train.sh [options]", description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of the whole training (default %(default)s)")
    parser.add_argument("--data", type=Path, help="token ids: .bin, .npy, or a folder of Dataset.save_to_disk (default: synthetic)")
    parser.add_argument("--data-type", choices=("uint16", "uint32", "int32"), help="of .bin (default: by its .json or vocabulary)")
    parser.add_argument("--weights", help="a folder of Hugging Face's to begin with (default: random weights)")
    parser.add_argument("--export-weights", help="write such a folder at the end")
    parser.add_argument("--save", type=Path, help="write checkpoints into this shared folder, and go on from its newest one")
    parser.add_argument("--save-every", type=int, default=CHECKPOINT_INTERVAL, help="steps between them (default %(default)s)")
    parser.add_argument("--keep", type=int, default=2, help="number of the newest that stay (default %(default)s)")
    parser.add_argument("--resume", help="begin with this checkpoint, of any plan of this model, where --save has none")
    options = parser.parse_args()
    missing = [path for path in (options.data, options.weights, options.resume) if path and not Path(path).exists()]
    if missing or options.steps < 0 or min(options.save_every, options.keep) < 1:
        parser.error(f"{missing[0]} does not exist" if missing else "--steps is below 0, or --save-every or --keep below 1")
    device = torch.device("cpu")
    dist.init_process_group("gloo")
    meshes = dist.init_device_mesh(device.type, tuple(MESH.values()), mesh_dim_names=tuple(MESH))
    model = build(meshes, device)
    parameters = dict(model.named_parameters())
    draw_weights(parameters)
    if options.weights:
        dcp.load(hugging_face_state(parameters), storage_reader=dcp.HuggingFaceStorageReader(options.weights))
    trained = list(parameters.values())
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    for parameter in trained:  # states from the beginning on, so that a checkpoint can be read into them
        optimizer.state[parameter] = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter]["step"] = torch.zeros((), device=parameter.device)
    counts = torch.zeros(2, dtype=torch.int64)  # steps and samples so far
    complete = options.save.glob("step-*/.metadata") if options.save else ()
    if resume_from := max((path.parent for path in complete), default=options.resume):
        dcp.load(state_of(parameters, optimizer, counts), checkpoint_id=resume_from)
    tokens = open_tokens(options.data, options.data_type) if options.data else None
    rank_samples = MICRO_BATCH  # samples of this rank in a step
    for step in range(int(counts[0]), options.steps):
        started = time.perf_counter()
        first = int(counts[1]) + dist.get_rank() // TP * rank_samples % GLOBAL_BATCH
        rows = torch.stack([sample(tokens, number) for number in range(first, first + rank_samples)]).to(device)
        with loss_parallel():
            loss, norm = train_step(model, optimizer, rows[:, :-1], rows[:, 1:])
        counts += torch.tensor([1, GLOBAL_BATCH])
        if dist.get_rank() == 0:
            speed = GLOBAL_BATCH * SEQ_LEN / (time.perf_counter() - started)
            print(f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f} tokens/s {speed:,.0f}", flush=True)
        if options.save and ((step + 1) % options.save_every == 0 or step + 1 == options.steps):
            save(options.save, options.keep, state_of(parameters, optimizer, counts))
    if options.export_weights:
        export_weights(options.export_weights, parameters, options.weights)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # torch 2.13 can wait for ever while it frees what a thread of gloo's still holds


if __name__ == "__main__":
    main()
