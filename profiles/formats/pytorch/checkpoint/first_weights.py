import hashlib

import torch
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


@torch.no_grad()
def draw_weights(parameters):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in parameters.items():
        # if: fsdp
        sizes, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
        piece, window = parameter.to_local(), [slice(first, first + size) for first, size in zip(offsets, sizes, strict=True)]
        # end: fsdp
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
        # if: moe and fsdp
        elif parameter.dim() == 3:
            for expert, matrix in enumerate(piece, window[0].start):
                draw(matrix, window[1:], parameter.shape[2], deviation, f"{SEED}/{name}/{expert}")
        # end: moe and fsdp
        # if: moe and not fsdp
        elif parameter.dim() == 3:
            for expert, matrix in enumerate(parameter):
                draw(matrix, deviation, f"{SEED}/{name}/{expert}")
        # end: moe and not fsdp
        else:
            # if: fsdp
            draw(piece, window, parameter.shape[1], deviation, f"{SEED}/{name}")
            # end: fsdp
            # if: not fsdp
            draw(parameter, deviation, f"{SEED}/{name}")
            # end: not fsdp


# if: fsdp
def draw(piece, window, columns, deviation, name):
    """Fills a window of a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, place = max(1, 2**18 // columns), window[0]
    for block in range(place.start // rows, -(-place.stop // rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(piece.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        values = torch.empty(rows, columns, device=piece.device).normal_(std=deviation, generator=generator)
        first, last = max(place.start, block * rows), min(place.stop, (block + 1) * rows)
        piece[first - place.start : last - place.start] = values[first - block * rows : last - block * rows, window[1]]
# end: fsdp
# if: not fsdp
def draw(matrix, deviation, name):
    """Fills a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, columns = max(1, 2**18 // matrix.shape[1]), matrix.shape[1]
    for block, part in enumerate(matrix.split(rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(part.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        part.copy_(torch.empty(rows, columns, device=part.device).normal_(std=deviation, generator=generator)[: len(part)])
# end: not fsdp
