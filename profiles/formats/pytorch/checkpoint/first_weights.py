import hashlib

import torch
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def named(parts):
    """The parameters of this rank with their names in the whole model."""
    return [item for part in parts for item in part.named_parameters()]


# if: fsdp
def piece_of(parameter):
    """What this rank holds of a parameter, and where it lies in the whole, as slices."""
    sizes, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return parameter.to_local(), [slice(first, first + size) for first, size in zip(offsets, sizes, strict=True)]


# end: fsdp
@torch.no_grad()
def draw_weights(parts):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in named(parts):
        # if: fsdp
        piece, window = piece_of(parameter)
        # end: fsdp
        # if: not fsdp
        piece, window = parameter, [slice(0, size) for size in parameter.shape]
        # end: not fsdp
        columns, deviation = parameter.shape[-1], 0.02
        # if: moe
        if name.endswith(("attention.output.weight", "feed_forward.down.weight", "experts.down", "shared.down.weight")):
        # end: moe
        # if: not moe
        if name.endswith(("attention.output.weight", "feed_forward.down.weight")):
        # end: not moe
            deviation *= (2 * LAYERS) ** -0.5  # what is added to the residual stream, as in GPT-2
        # if: lora
        if "lora_" in name:
            deviation = columns**-0.5 if name.endswith("lora_a") else 0.0
        # end: lora
        if parameter.dim() == 1:
            piece.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        # if: moe
        elif parameter.dim() == 3:
            for expert, matrix in enumerate(piece, window[0].start):
                draw(matrix, window[1:], columns, deviation, f"{SEED}/{name}/{expert}")
        # end: moe
        else:
            draw(piece, window, columns, deviation, f"{SEED}/{name}")


def draw(piece, window, columns, deviation, name):
    """Fills a window of a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, place = max(1, 2**18 // columns), window[0]
    for block in range(place.start // rows, -(-place.stop // rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(piece.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        values = torch.empty(rows, columns, device=piece.device).normal_(std=deviation, generator=generator)
        first, last = max(place.start, block * rows), min(place.stop, (block + 1) * rows)
        piece[first - place.start : last - place.start] = values[first - block * rows : last - block * rows, window[1]]
