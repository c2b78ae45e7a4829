import hashlib

import torch
from torch.distributed.tensor import distribute_tensor


@torch.no_grad()
def draw_weights(parameters):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in parameters.items():
        # if: moe
        ends_branch = name.endswith(("output.weight", "down.weight", "experts.down"))
        deviation = 0.02 * (2 * LAYERS) ** -0.5 if ends_branch else 0.02  # as in GPT-2
        # end: moe
        # if: not moe
        deviation = 0.02 * (2 * LAYERS) ** -0.5 if name.endswith(("output.weight", "down.weight")) else 0.02  # as in GPT-2
        # end: not moe
        # if: lora
        if "lora_" in name:
            deviation = parameter.shape[1] ** -0.5 if name.endswith("lora_a") else 0.0
        # end: lora
        if parameter.dim() == 1:
            # if: zeros
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            # end: zeros
            # if: not zeros
            parameter.fill_(1.0)
            # end: not zeros
        # if: fsdp
        else:
            whole = torch.empty(parameter.shape, device=parameter.device)
            draw(whole, deviation, f"{SEED}/{name}")
            parameter.copy_(distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None))
        # end: fsdp
        # if: not fsdp
        else:
            draw(parameter, deviation, f"{SEED}/{name}")
        # end: not fsdp


def draw(matrix, deviation, name):
    """Fills a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    # if: moe
    if matrix.dim() == 3:  # of experts
        for expert, one in enumerate(matrix):
            draw(one, deviation, f"{name}/{expert}")
        return
    # end: moe
    rows, columns = max(1, 2**18 // matrix.shape[1]), matrix.shape[1]
    for block, part in enumerate(matrix.split(rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(part.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        part.copy_(torch.empty(rows, columns, device=part.device).normal_(std=deviation, generator=generator)[: len(part)])
