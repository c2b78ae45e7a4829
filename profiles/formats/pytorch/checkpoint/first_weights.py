import hashlib

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def named(parts):
    """The parameters of this rank with their names in the whole model."""
    for part in parts:
        yield from getattr(part, "module", part).named_parameters()  # DDP has its model in ``module``


def local(tensor):
    """What this rank holds of a tensor."""
    # if: fsdp
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
    # end: fsdp
    # if: not fsdp
    return tensor
    # end: not fsdp


def window_of(parameter):
    """Where the part of a parameter that this rank holds lies in the whole, as slices."""
    sizes, offsets = parameter.shape, [0] * parameter.dim()
    # if: fsdp
    if isinstance(parameter, DTensor):
        sizes, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    # end: fsdp
    return [slice(first, first + size) for first, size in zip(offsets, sizes, strict=True)]


@torch.no_grad()
def draw_weights(parts):
    """First values that depend on SEED and a parameter's name, not on the layout: all plans begin with the same model."""
    for name, parameter in named(parts):
        part, window = local(parameter), window_of(parameter)
        columns, deviation = parameter.shape[-1], 0.02
        if name.endswith(("attention.output.weight", "feed_forward.down.weight", "experts.down", "shared.down.weight")):
            deviation *= (2 * LAYERS) ** -0.5  # what is added to the residual stream, as in GPT-2
        # if: lora
        if "lora_" in name:
            deviation = columns**-0.5 if name.endswith("lora_a") else 0.0
        # end: lora
        if parameter.dim() == 1:
            part.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        # if: moe
        elif parameter.dim() == 3:
            for expert, matrix in enumerate(part, window[0].start):
                draw(matrix, window[1:], columns, deviation, f"{SEED}/{name}/{expert}")
        # end: moe
        else:
            draw(part, window, columns, deviation, f"{SEED}/{name}")


def draw(part, window, columns, deviation, name):
    """Fills a window of a matrix with normal values, block of rows by block of rows, each block from a seed of its own."""
    rows, place = max(1, 2**18 // columns), window[0]
    for block in range(place.start // rows, -(-place.stop // rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(part.device).manual_seed(int.from_bytes(digest, "big") >> 1)
        values = torch.empty(rows, columns, device=part.device).normal_(std=deviation, generator=generator)
        first, last = max(place.start, block * rows), min(place.stop, (block + 1) * rows)
        part[first - place.start : last - place.start] = values[first - block * rows : last - block * rows, window[1]]
