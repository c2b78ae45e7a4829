import argparse
import os
import time
from contextlib import ExitStack, nullcontext

import torch
import torch.distributed as dist


from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import loss_parallel


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of the whole training (default %(default)s)")
    parser.add_argument("--data", help="token ids: a .bin or .npy file, or a folder of Dataset.save_to_disk (default: synthetic)")
    parser.add_argument("--data-type", help="of a .bin file: uint16, uint32 or int32 (default: by its .json, or the vocabulary)")
    # if: hugging_face
    parser.add_argument("--weights", help="a folder of Hugging Face's to begin with (default: random weights)")
    parser.add_argument("--export-weights", help="write such a folder at the end")
    # end: hugging_face
    parser.add_argument("--save", help="write checkpoints into this folder, and go on from its newest one")
    parser.add_argument("--save-every", type=int, default=CHECKPOINT_INTERVAL, help="steps between them (default %(default)s)")
    parser.add_argument("--keep", type=int, default=2, help="number of the newest that stay (default %(default)s)")
    parser.add_argument("--resume", help="begin with a checkpoint of any plan of this model, where --save has none")
    return parser.parse_args()


def main():
    options = arguments()
    rank = int(os.environ["RANK"])
    # if: cuda
    device = torch.device(DEVICE, int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    # if: offload
    dist.init_process_group("cpu:gloo,cuda:nccl")
    # end: offload
    # if: not offload
    dist.init_process_group("nccl")
    # end: not offload
    # end: cuda
    # if: not cuda
    device = torch.device(DEVICE)
    dist.init_process_group("gloo")
    # end: not cuda
    # if: meshes
    meshes = make_meshes()
    # end: meshes
    # if: not meshes
    meshes = {}
    # end: not meshes
    # if: ring
    set_rotate_method(CP_ROTATE)
    # end: ring
    # if: hugging_face
    parts, run = make_stages(meshes, device, options.weights)
    # end: hugging_face
    # if: not hugging_face
    parts, run = make_stages(meshes, device, None)
    # end: not hugging_face
    optimizer = make_optimizer(parts)
    counts = torch.zeros(2, dtype=torch.int64)  # steps and samples so far
    if begin := newest(options.save) or newest(options.resume):
        resume(begin, parts, optimizer, counts)
    text = Tokens(options.data, options.data_type) if options.data else Synthetic()
    own = MICRO_BATCH * ACCUMULATION
    data_rank = rank // (CP * TP) % (DP_REPLICATE * DP_SHARD)
    # if: gathers
    positions = slices_of_context(device)[meshes["cp"].get_local_rank()]
    # end: gathers
    for step in range(int(counts[0]), options.steps):
        started = time.perf_counter()
        tokens, targets = (rows.to(device) for rows in read_rows(text, int(counts[1]) + data_rank * own, own))
        # if: gathers
        tokens, targets = tokens[:, positions], targets[:, positions]
        # end: gathers
        # if: not contexts
        loss = run(tokens, targets)
        # end: not contexts
        # if: contexts
        with ExitStack() as around:
            # if: ring
            cut = {"buffers": [tokens, targets], "buffer_seq_dims": [1, 1], "no_restore_buffers": {tokens, targets}}
            around.enter_context(context_parallel(meshes["cp"], **cut))
            # end: ring
            # if: tp
            around.enter_context(loss_parallel() if LOSS_PARALLEL else nullcontext())
            # end: tp
            loss = run(tokens, targets)
        # end: contexts
        loss, norm = update(parts, optimizer, loss)
        counts += torch.tensor([1, DP_REPLICATE * DP_SHARD * own])
        if rank == 0:
            seconds = time.perf_counter() - started
            speed = DP_REPLICATE * DP_SHARD * own * SEQ_LEN / seconds
            # if: cuda
            memory = torch.cuda.max_memory_allocated() / 2**30
            line = f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f} tokens/s {speed:,.0f} memory {memory:.2f} GiB"
            # end: cuda
            # if: not cuda
            line = f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f} tokens/s {speed:,.0f}"
            # end: not cuda
            print(line, flush=True)
        if options.save and ((step + 1) % options.save_every == 0 or step + 1 == options.steps):
            save(options.save, options.keep, parts, optimizer, counts)
    # if: hugging_face
    if options.export_weights:
        export_weights(options.export_weights, parts, options.weights)
    # end: hugging_face
    dist.barrier()
    dist.destroy_process_group()
    # if: not cuda
    os._exit(0)  # torch 2.13 can wait for ever while it frees what a thread of gloo's still holds
    # end: not cuda


if __name__ == "__main__":
    main()
