"""Seeded weights, equal bit by bit under every layout: each rank draws just its rows, from generators that know no ranks."""

import hashlib

import torch
from torch import Tensor

from strategist.contract.model import ModelShape
from strategist_runtime import compat
from strategist_runtime.model.decoder import Decoder, plain_names
from strategist_runtime.model.rotary import Rotary
from strategist_runtime.model.scene import Scenes

STANDARD_DEVIATION = 0.02
BLOCK_ELEMENTS = 2**18


def materialise(model: Decoder, shape: ModelShape, seq_len: int, seed: int, device: torch.device) -> None:
    """Gives the parameters of a meta model storage on ``device`` and their first values.

    Norms are 1, biases 0, matrices normal; those that write into the residual stream are scaled by 1 / sqrt(2 x layers), as GPT-2.
    """
    model.to_empty(device=device)
    model.tie()
    model.scenes = Scenes(Rotary(seq_len, shape.head_size, shape.rope_theta, device), torch.arange(seq_len, device=device))
    with torch.no_grad():
        for name, parameter in plain_names([model]):
            local, lengths, offsets = compat.local_part(parameter)
            if model.tied and name == "head.weight":  # of a last stage that has no embedding: the same values
                name = "embedding.weight"
            if "norm" in name:
                local.fill_(1.0)
            elif parameter.dim() == 1:
                local.zero_()
            else:
                into_residual = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
                scale = (2 * shape.layers) ** -0.5 if into_residual else 1.0
                _draw(local, lengths, offsets, parameter.shape[1], f"{seed}/{name}", STANDARD_DEVIATION * scale)


def _draw(local: Tensor, lengths: tuple[int, ...], offsets: tuple[int, ...], columns: int, name: str, deviation: float) -> None:
    """Fills ``local``, the window ``lengths`` at ``offsets`` of a matrix with ``columns``, block of rows by block of rows."""
    block_rows = max(1, BLOCK_ELEMENTS // columns)
    (rows, width), (first, left) = lengths, offsets
    done = 0
    while done < rows:
        block, skip = divmod(first + done, block_rows)
        take = min(block_rows - skip, rows - done)
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest) >> 1)
        values = torch.empty(block_rows, columns).normal_(std=deviation, generator=generator)
        local[done : done + take].copy_(values[skip : skip + take, left : left + width])
        done += take
