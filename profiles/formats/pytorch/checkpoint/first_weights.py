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
        # if: moe
        matrices = {f"{name}/{expert}": matrix for expert, matrix in enumerate(full)} if full.dim() == 3 else {name: full}
        for key, matrix in matrices.items() if full.dim() > 1 else ():
            shape = (max(1, 2**18 // matrix.shape[1]), matrix.shape[1])  # rows that one seed draws, and columns
            for block, rows in enumerate(matrix.split(shape[0])):
                digest = hashlib.blake2b(f"{SEED}/{key}/{block}".encode(), digest_size=8).digest()
                generator = torch.Generator(rows.device).manual_seed(int.from_bytes(digest, "big") >> 1)
                rows.copy_(torch.normal(0.0, deviation, shape, generator=generator, device=rows.device)[: len(rows)])
        # end: moe
        # if: reads_matrices
        if folder and "lora_" not in name:
            hugging_face_name = ".".join(HUGGING_FACE.get(word, word) for word in name.split("."))
            dcp.load({hugging_face_name: full}, storage_reader=reader, no_dist=True)
        elif full.dim() > 1:
        # end: reads_matrices
        # if: not reads_matrices and not moe
        if full.dim() > 1:
        # end: not reads_matrices and not moe
            # if: not moe
            shape = (max(1, 2**18 // full.shape[1]), full.shape[1])  # rows that one seed draws, and columns
            for block, rows in enumerate(full.split(shape[0])):
                digest = hashlib.blake2b(f"{SEED}/{name}/{block}".encode(), digest_size=8).digest()
                generator = torch.Generator(rows.device).manual_seed(int.from_bytes(digest, "big") >> 1)
                rows.copy_(torch.normal(0.0, deviation, shape, generator=generator, device=rows.device)[: len(rows)])
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
