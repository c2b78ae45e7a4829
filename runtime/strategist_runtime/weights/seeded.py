"""Seeded weights, equal bit by bit in every layout: each rank draws only its rows, from generators that do not depend on ranks."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from strategist.contract.model import ModelShape
from strategist_runtime.compat.dtensor import copy_rows, local_part
from strategist_runtime.model.attention_metadata import MetadataBuilder
from strategist_runtime.model.decoder import Decoder, plain_names
from strategist_runtime.model.rotary import rotary_of
from strategist_runtime.weights.source import load

STANDARD_DEVIATION = 0.02
BLOCK_ELEMENTS = 2**18
HOST = torch.device("cpu")
HOST_GROUP = 16
"""Numbers that torch draws at a time on a host (aten/src/ATen/native/cpu/DistributionTemplates.h: ``normal_fill``)."""

HOST_ELEMENTS = 2**20
"""Matrices of at most this many elements are drawn on the host, so that a small model has the same initial weights on every kind
of device.
"""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The part ``local`` of a matrix of shape ``shape``; it has ``lengths`` and begins at ``offsets``."""

    local: Tensor
    shape: torch.Size
    lengths: tuple[int, ...]
    offsets: tuple[int, ...]


def materialise(
    model: Decoder,
    shape: ModelShape,
    seq_len: int,
    seed: int,
    device: torch.device,
    folder: str = "",
    compute_device: torch.device | None = None,
) -> None:
    """Allocates the parameters of a meta model on ``device`` and fills them with seeded values, or with the weights in a Hugging
    Face ``folder``.

    ``compute_device``: the device of the computation, if weights are stored on another; seeded values are those of that device.

    Norms are 1, biases 0, matrices normal; those that write to the residual stream are scaled by 1 / sqrt(2 x layers), as in GPT-2.
    """
    model.to_empty(device=device)
    model.tie()
    for buffer in model.buffers():  # loads and balance biases of routers
        buffer.zero_()
    model.metadata_builder = MetadataBuilder(
        rotary_of(shape, seq_len, device), torch.arange(seq_len, device=device), window=shape.sliding_window
    )
    with torch.no_grad():
        for name, parameter in plain_names([model]):
            if not folder or name.endswith(("lora_a", "lora_b")):
                tied = model.tied and name == "head.weight"  # a last stage without the embedding has the same values
                _initialise("embedding.weight" if tied else name, parameter, shape, seed, compute_device or device)
    if folder:
        load([model], shape, folder)


def _initialise(name: str, parameter: nn.Parameter, shape: ModelShape, seed: int, device: torch.device) -> None:
    """Fills this rank's part of a parameter with seeded values, drawn on ``device``."""
    local, lengths, offsets = local_part(parameter)
    if name.endswith("norm.weight"):
        local.fill_(1.0)
    elif parameter.dim() == 1 or name.endswith("_bias"):
        local.zero_()
    elif parameter.dim() == 3:  # each expert is drawn separately
        for expert, matrix in enumerate(local, offsets[0]):
            window = Window(local=matrix, shape=parameter.shape[1:], lengths=lengths[1:], offsets=offsets[1:])
            _draw(window, f"{seed}/{name}/{expert}", deviation(name, parameter.shape[2], shape), device)
    elif parameter.is_floating_point():  # 4-bit weights are bytes, which lora.py fills
        window = Window(local=local, shape=parameter.shape, lengths=lengths, offsets=offsets)
        _draw(window, f"{seed}/{name}", deviation(name, parameter.shape[1], shape), device)


def deviation(name: str, columns: int, shape: ModelShape) -> float:
    """The standard deviation of a matrix's initial values; LoRA's B is 0 (arXiv 2106.09685, section 4.1)."""
    if name.endswith(("lora_a", "lora_b")):
        return columns**-0.5 if name.endswith("lora_a") else 0.0
    into_residual = name.endswith(("attention.output.weight", "feed_forward.down.weight", "experts.down", "shared.down.weight"))
    return STANDARD_DEVIATION * ((2 * shape.layers) ** -0.5 if into_residual else 1.0)


def seeded_rows(seed: int, shape: ModelShape, name: str, columns: int, rows: range) -> Iterator[tuple[int, Tensor]]:
    """The initial values of a matrix of a model, in blocks as from ``random_rows``."""
    return random_rows(f"{seed}/{name}", columns, deviation(name, columns, shape), rows)


def _draw(window: Window, name: str, deviation: float, device: torch.device) -> None:
    """Fills the window by blocks of rows; those of a large matrix are drawn on ``device``."""
    first, count, columns = window.offsets[0], window.lengths[0], window.shape[1]
    draw_device = HOST if window.shape.numel() <= HOST_ELEMENTS else device
    for start, values in random_rows(name, columns, deviation, range(first, first + count), draw_device):
        copy_rows(window.local, window.offsets, start, values)


def random_rows(
    name: str, columns: int, deviation: float, rows: range, draw_device: torch.device = HOST
) -> Iterator[tuple[int, Tensor]]:
    """Blocks of whole rows that together cover ``rows`` of a seeded matrix: the first row of each, and its values.

    ``draw_device`` is the device that draws them. Each kind of device has its own values for a seed. One thread of the host
    would take minutes for a model of eight billion parameters, so only matrices up to ``HOST_ELEMENTS`` are drawn there.
    """
    block_rows = max(1, BLOCK_ELEMENTS // columns)
    for block in range(rows.start // block_rows, -(-rows.stop // block_rows)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=8).digest()
        generator = torch.Generator(draw_device).manual_seed(int.from_bytes(digest) >> 1)
        drawn_rows = _drawn_rows(block_rows, rows.stop - block * block_rows) if draw_device == HOST else block_rows
        yield block * block_rows, torch.empty(drawn_rows, columns, device=draw_device).normal_(std=deviation, generator=generator)


def _drawn_rows(block_rows: int, wanted_rows: int) -> int:
    """The rows of a block to draw so that the ``wanted_rows`` first ones have their values.

    On a host torch draws numbers in order, ``HOST_GROUP`` at a time; if the last ones are fewer, it draws the last
    ``HOST_GROUP`` again.
    """
    rows = -(-wanted_rows // HOST_GROUP) * HOST_GROUP
    return rows if rows + HOST_GROUP <= block_rows else block_rows
