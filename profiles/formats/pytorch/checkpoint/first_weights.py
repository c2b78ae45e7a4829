import hashlib

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import distribute_tensor


@torch.no_grad()
# if: reads_matrices
def first_weights(parameters, folder):
    """Weights of Hugging Face's folder, a matrix at a time; without one, and of adapters, values that depend on SEED and a name."""
    reader = dcp.HuggingFaceStorageReader(folder) if folder else None
# end: reads_matrices
# if: not reads_matrices
def draw_weights(parameters):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
# end: not reads_matrices
    for name, parameter in parameters.items():
        # if: qlora
        packed, name = name.endswith("nf4"), name.replace("nf4", "weight")
        columns = (parameter.shape[1] * parameter.element_size() - 8) // 33 * 64 if packed else parameter.shape[-1]
        # end: qlora
        # if: qlora and zeros
        full = torch.full((*parameter.shape[:-1], columns), 0.0 if name.endswith("bias") else 1.0, device=parameter.device)
        # end: qlora and zeros
        # if: qlora and not zeros
        full = torch.ones(*parameter.shape[:-1], columns, device=parameter.device)
        # end: qlora and not zeros
        # if: fsdp and zeros and not qlora
        full = torch.full(parameter.shape, 0.0 if name.endswith("bias") else 1.0, device=parameter.device)
        # end: fsdp and zeros and not qlora
        # if: fsdp and not zeros and not qlora
        full = torch.ones(parameter.shape, device=parameter.device)
        # end: fsdp and not zeros and not qlora
        # if: not fsdp and zeros and not qlora
        full = parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        # end: not fsdp and zeros and not qlora
        # if: not fsdp and not zeros and not qlora
        full = parameter.fill_(1.0)
        # end: not fsdp and not zeros and not qlora
        # if: moe
        is_output = name.endswith(("output.weight", "down.weight", "experts.down"))
        deviation = 0.02 * (2 * LAYERS) ** -0.5 if is_output else 0.02  # as in GPT-2
        # end: moe
        # if: not moe
        deviation = 0.02 * (2 * LAYERS) ** -0.5 if name.endswith(("output.weight", "down.weight")) else 0.02  # as in GPT-2
        # end: not moe
        # if: lora
        if "lora_" in name:
            deviation = parameter.shape[1] ** -0.5 if name.endswith("lora_a") else 0.0
        # end: lora
        # if: reads_matrices
        if folder and "lora_" not in name:
            hugging_face_name = ".".join(HUGGING_FACE.get(word, word) for word in name.split("."))
            dcp.load({hugging_face_name: full}, storage_reader=reader, no_dist=True)
        elif full.dim() > 1:
        # end: reads_matrices
        # if: not reads_matrices
        if full.dim() > 1:
        # end: not reads_matrices
            # if: moe
            draw(full, deviation, f"{SEED}/{name}")
            # end: moe
            # if: not moe
            count = max(1, 2**18 // full.shape[1])  # rows that one seed draws
            for block, rows in enumerate(full.split(count)):
                digest = hashlib.blake2b(f"{SEED}/{name}/{block}".encode(), digest_size=8).digest()
                generator = torch.Generator(rows.device).manual_seed(int.from_bytes(digest, "big") >> 1)
                values = torch.empty(count, full.shape[1], device=rows.device).normal_(std=deviation, generator=generator)
                rows.copy_(values[: len(rows)])
            # end: not moe
        # if: qlora
        full = torch.cat([quantise(rows) for rows in full.split(1024)]) if packed else full
        # end: qlora
        # if: fsdp
        parameter.copy_(distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None))
        # end: fsdp
        # if: qlora and not fsdp
        parameter.copy_(full)
        # end: qlora and not fsdp
# if: moe


def draw(matrix, deviation, name):
    """Fills a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    if matrix.dim() == 3:  # of experts
        for expert, expert_matrix in enumerate(matrix):
            draw(expert_matrix, deviation, f"{name}/{expert}")
        return
    rows, columns = max(1, 2**18 // matrix.shape[1]), matrix.shape[1]
    for block, part in enumerate(matrix.split(rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(part.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        part.copy_(torch.empty(rows, columns, device=part.device).normal_(std=deviation, generator=generator)[: len(part)])
# end: moe
