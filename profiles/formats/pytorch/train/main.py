import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(usage="./train.sh [options]", description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of the whole training (default %(default)s)")
    parser.add_argument("--data", type=Path, help="token ids: .bin, .npy, or a folder of Dataset.save_to_disk (default: synthetic)")
    parser.add_argument("--data-type", choices=("uint16", "uint32", "int32"), help="of .bin (default: by its .json or vocabulary)")
    # if: hugging_face
    parser.add_argument("--weights", help="a folder of Hugging Face's to begin with (default: random weights)")
    # end: hugging_face
    # if: hugging_face and not qlora
    parser.add_argument("--export-weights", help="write such a folder at the end")
    # end: hugging_face and not qlora
    parser.add_argument("--save", type=Path, help="write checkpoints into this shared folder, and go on from its newest one")
    parser.add_argument("--save-every", type=int, default=CHECKPOINT_INTERVAL, help="steps between them (default %(default)s)")
    parser.add_argument("--keep", type=int, default=2, help="number of the newest that stay (default %(default)s)")
    parser.add_argument("--resume", help="begin with this checkpoint, of any plan of this model, where --save has none")
    options = parser.parse_args()
    # if: hugging_face
    missing = [path for path in (options.data, options.weights, options.resume) if path and not Path(path).exists()]
    # end: hugging_face
    # if: not hugging_face
    missing = [path for path in (options.data, options.resume) if path and not Path(path).exists()]
    # end: not hugging_face
    if missing or options.steps < 0 or min(options.save_every, options.keep) < 1:
        parser.error(f"{missing[0]} does not exist" if missing else "--steps is below 0, or --save-every or --keep below 1")
    # if: cuda
    device = torch.device("cuda", dist.get_node_local_rank())
    torch.cuda.set_device(device)
    # if: offload
    dist.init_process_group("cpu:gloo,cuda:nccl")
    # end: offload
    # if: not offload
    dist.init_process_group("nccl")
    # end: not offload
    # end: cuda
    # if: not cuda
    device = torch.device("cpu")
    dist.init_process_group("gloo")
    # end: not cuda
    # if: cp_ring
    set_rotate_method(CP_ROTATE)
    # end: cp_ring
    # if: meshes
    meshes = dist.init_device_mesh(device.type, tuple(MESH.values()), mesh_dim_names=tuple(MESH))
    # end: meshes
    # if: cp
    meshes["dp_shard", "cp"]._flatten("shards")  # context ranks hold shards of parameters, too
    # end: cp
    # if: pp
    parts, schedule = make_stages(meshes, device)
    parameters = {name: parameter for part in parts for name, parameter in part.named_parameters()}
    # end: pp
    # if: not pp and meshes
    model = build(meshes, device)
    # end: not pp and meshes
    # if: not pp and not meshes
    model = build(device)
    # end: not pp and not meshes
    # if: not pp
    parameters = dict(model.named_parameters())
    # end: not pp
    # if: reads_matrices
    first_weights(parameters, options.weights)
    # end: reads_matrices
    # if: not reads_matrices
    draw_weights(parameters)
    # end: not reads_matrices
    # if: hugging_face and not qlora
    if options.weights:
        dcp.load(hugging_face_state(parameters), storage_reader=dcp.HuggingFaceStorageReader(options.weights))
    # end: hugging_face and not qlora
    # if: lora
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    # end: lora
    # if: not lora
    trained = list(parameters.values())
    # end: not lora
    # if: sgd and several_meshes
    optimizer = torch.optim.SGD(mesh_groups(trained), lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd and several_meshes
    # if: sgd and not several_meshes
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd and not several_meshes
    # if: fused and not sgd and several_meshes
    optimizer = torch.optim.AdamW(mesh_groups(trained), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: fused and not sgd and several_meshes
    # if: fused and not sgd and not several_meshes
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: fused and not sgd and not several_meshes
    # if: not sgd and not fused
    foreach = OPTIMIZER_KERNEL == "foreach"
    # end: not sgd and not fused
    # if: not sgd and not fused and several_meshes
    optimizer = torch.optim.AdamW(mesh_groups(trained), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=foreach)
    # end: not sgd and not fused and several_meshes
    # if: not sgd and not fused and not several_meshes
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=foreach)
    # end: not sgd and not fused and not several_meshes
    # if: not sgd
    for parameter in trained:  # states from the beginning on, so that a checkpoint can be read into them
        optimizer.state[parameter] = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        # if: fused
        optimizer.state[parameter]["step"] = torch.zeros((), device=parameter.device)
        # end: fused
        # if: not fused
        optimizer.state[parameter]["step"] = torch.zeros(())
        # end: not fused
    # end: not sgd
    # if: balance_bias
    # if: pp
    parameters |= {name: buffer for part in parts for name, buffer in part.named_buffers()}  # which checkpoints contain as well
    # end: pp
    # if: not pp
    parameters |= dict(model.named_buffers())  # which checkpoints contain as well
    # end: not pp
    # end: balance_bias
    counts = torch.zeros(2, dtype=torch.int64)  # steps and samples so far
    complete = options.save.glob("step-*/.metadata") if options.save else ()
    if resume_from := max((path.parent for path in complete), default=options.resume):
        # if: fp16
        state = state_of(parameters, optimizer, counts)
        if "training.loss_scale" not in dcp.FileSystemReader(resume_from).read_metadata().state_dict_metadata:
            del state["training.loss_scale"]  # the checkpoint has another precision
        dcp.load(state, checkpoint_id=resume_from)
        # end: fp16
        # if: not fp16
        dcp.load(state_of(parameters, optimizer, counts), checkpoint_id=resume_from)
        # end: not fp16
    # if: ddp and buckets
    buckets = {"bucket_cap_mb": BUCKET_CAP_MB, "gradient_as_bucket_view": GRADIENT_AS_BUCKET_VIEW}
    model = DistributedDataParallel(model, static_graph=STATIC_GRAPH, **buckets)
    # end: ddp and buckets
    # if: ddp and not buckets
    model = DistributedDataParallel(model, gradient_as_bucket_view=GRADIENT_AS_BUCKET_VIEW)
    # end: ddp and not buckets
    tokens = open_tokens(options.data, options.data_type) if options.data else None
    # if: async
    writer, group = ThreadPoolExecutor(1), dist.new_group(backend="gloo")  # its collectives overlap with those of a step
    saving = writer.submit(lambda: None)  # nothing yet
    # end: async
    # if: pinned and cuda
    stager = BlockingAsyncStager(cache_staged_state_dict=True)  # copies into page-locked memory, which it keeps
    # end: pinned and cuda
    # if: pinned and not cuda
    stager = BlockingAsyncStager()
    # end: pinned and not cuda
    # if: async and not pinned
    stager = BlockingAsyncStager()
    # end: async and not pinned
    # if: one_micro_batch
    rank_samples = MICRO_BATCH  # samples of this rank in a step
    # end: one_micro_batch
    # if: not one_micro_batch
    rank_samples = MICRO_BATCH * ACCUMULATION  # samples of this rank in a step
    # end: not one_micro_batch
    # if: cp_gathered
    slices = context_slices(device)
    positions = Attention.positions = slices[meshes["cp"].get_local_rank()]
    Attention.attend = GatheredAttention(slices, meshes["cp"])
    # end: cp_gathered
    # if: cp_ring
    positions = Attention.positions = torch.arange(SEQ_LEN, device=device)
    # end: cp_ring
    for step in range(int(counts[0]), options.steps):
        started = time.perf_counter()
        # if: cp and tp
        first = int(counts[1]) + dist.get_rank() // (CP * TP) * rank_samples % GLOBAL_BATCH
        # end: cp and tp
        # if: cp and not tp
        first = int(counts[1]) + dist.get_rank() // CP * rank_samples % GLOBAL_BATCH
        # end: cp and not tp
        # if: tp and not cp
        first = int(counts[1]) + dist.get_rank() // TP * rank_samples % GLOBAL_BATCH
        # end: tp and not cp
        # if: pp and not cp and not tp
        first = int(counts[1]) + dist.get_rank() * rank_samples % GLOBAL_BATCH
        # end: pp and not cp and not tp
        # if: not pp and not cp and not tp
        first = int(counts[1]) + dist.get_rank() * rank_samples
        # end: not pp and not cp and not tp
        rows = torch.stack([sample(tokens, number) for number in range(first, first + rank_samples)]).to(device)
        # if: cp_gathered
        inputs, targets = rows[:, :-1][:, positions], rows[:, 1:][:, positions]
        # end: cp_gathered
        # if: cp_ring
        inputs, targets = rows[:, :-1].clone(), rows[:, 1:].clone()  # torch cuts them in place, with positions
        context = {"buffers": [inputs, targets, positions], "buffer_seq_dims": [1, 1, 0], "no_restore_buffers": {inputs, targets}}
        # end: cp_ring
        # if: cp_ring and loss_parallel
        with context_parallel(meshes["cp"], **context), loss_parallel():
        # end: cp_ring and loss_parallel
        # if: cp_ring and not loss_parallel
        with context_parallel(meshes["cp"], **context):
        # end: cp_ring and not loss_parallel
        # if: loss_parallel and not cp_ring
        with loss_parallel():
        # end: loss_parallel and not cp_ring
            # if: step_context and pp and cp
            loss, norm = train_step(schedule, optimizer, inputs, targets)
            # end: step_context and pp and cp
            # if: step_context and pp and not cp
            loss, norm = train_step(schedule, optimizer, rows[:, :-1], rows[:, 1:])
            # end: step_context and pp and not cp
            # if: step_context and not pp and cp
            loss, norm = train_step(model, optimizer, inputs, targets)
            # end: step_context and not pp and cp
            # if: step_context and not pp and not cp
            loss, norm = train_step(model, optimizer, rows[:, :-1], rows[:, 1:])
            # end: step_context and not pp and not cp
        # if: not step_context and pp and cp
        loss, norm = train_step(schedule, optimizer, inputs, targets)
        # end: not step_context and pp and cp
        # if: not step_context and pp and not cp
        loss, norm = train_step(schedule, optimizer, rows[:, :-1], rows[:, 1:])
        # end: not step_context and pp and not cp
        # if: not step_context and not pp and cp
        loss, norm = train_step(model, optimizer, inputs, targets)
        # end: not step_context and not pp and cp
        # if: not step_context and not pp and not cp
        loss, norm = train_step(model, optimizer, rows[:, :-1], rows[:, 1:])
        # end: not step_context and not pp and not cp
        counts += torch.tensor([1, GLOBAL_BATCH])
        if dist.get_rank() == 0:
            # if: not cuda
            speed = GLOBAL_BATCH * SEQ_LEN / (time.perf_counter() - started)
            # end: not cuda
            # if: cuda
            speed, memory = GLOBAL_BATCH * SEQ_LEN / (time.perf_counter() - started), torch.cuda.max_memory_allocated() / 2**30
            print(f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f} tokens/s {speed:,.0f} memory {memory:.2f} GiB", flush=True)
            # end: cuda
            # if: not cuda
            print(f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f} tokens/s {speed:,.0f}", flush=True)
            # end: not cuda
        if options.save and ((step + 1) % options.save_every == 0 or step + 1 == options.steps):
            # if: async
            saving.result()
            saving = writer.submit(save, options.save, options.keep, stager.stage(state_of(parameters, optimizer, counts)), group)
    saving.result()
            # end: async
            # if: not async
            save(options.save, options.keep, state_of(parameters, optimizer, counts))
            # end: not async
    # if: hugging_face and not qlora
    if options.export_weights:
        export_weights(options.export_weights, parameters, options.weights)
    # end: hugging_face and not qlora
    dist.barrier()
    dist.destroy_process_group()
    # if: not cuda
    os._exit(0)  # torch 2.13 can wait for ever while it frees what a thread of gloo's still holds
    # end: not cuda


if __name__ == "__main__":
    main()
