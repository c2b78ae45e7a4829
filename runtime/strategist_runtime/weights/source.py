"""Initial weights from a local Hugging Face folder; each rank reads only its shards."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from strategist.contract.hugging_face import read_json
from strategist.contract.model import ModelShape
from strategist.errors import FileError, InputError
from strategist_runtime.compat.dtensor import local_part
from strategist_runtime.model.decoder import balance_biases, plain_names
from strategist_runtime.weights.hugging_face import TensorLocation, names_of

INDEX, SINGLE, CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
BLOCK_ROWS = 1024
TYPES = ("F64", "F32", "BF16", "F16")
PREFIXES = ("model.", "transformer.")
"""Prefixes that names lack if a model was saved without its head, as in OpenAI's own files of GPT-2."""


class Source:
    """The tensors of a folder, by name."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).expanduser()
        self.files = self._files()
        self._open: dict[Path, Any] = {}

    def model_type(self) -> str:
        """The model_type of config.json."""
        return str(read_json(self.folder / CONFIG).get("model_type"))

    def has(self, name: str) -> bool:
        return name in self.files

    def window(
        self, location: TensorLocation, shape: tuple[int, ...] | None, lengths: tuple[int, ...], offsets: tuple[int, ...]
    ) -> Tensor:
        """The part of a parameter with ``lengths`` at ``offsets``. ``shape`` is the shape of the whole parameter; None skips the
        check.

        Raises:
            FileError: the tensor is missing, or has another shape or an unsupported type.
        """
        name = self._stored_name(location.name)
        stored = self._reader(name).get_slice(name)
        if stored.get_dtype() not in TYPES:
            raise FileError(self.files[name], f"tensor {name} is of type {stored.get_dtype()}, and {', '.join(TYPES)} can be read")
        expected_shape = stored.get_shape() if shape is None else _stored_shape(location, shape)
        if stored.get_shape() != expected_shape:
            raise FileError(
                self.files[name], f"tensor {name} has the shape {stored.get_shape()}, and the plan's model needs {expected_shape}"
            )
        starts = (offsets[0] + location.first, *offsets[1:])
        slices = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        values = stored[tuple(slices[::-1] if location.transposed else slices)]
        return values.t() if location.transposed else values

    def _stored_name(self, name: str) -> str:
        shorter = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)
        if name not in self.files and shorter not in self.files:
            raise FileError(self.folder, f"holds no tensor {name}, which the plan's model needs")
        return name if name in self.files else shorter

    def _files(self) -> dict[str, Path]:
        index = self.folder / INDEX
        if index.is_file():
            return {str(name): self.folder / str(file) for name, file in read_json(index).get("weight_map", {}).items()}
        single = self.folder / SINGLE
        if not single.is_file():
            raise InputError(f"--weights {self.folder}", f"has neither {SINGLE} nor {INDEX}", "give a Hugging Face model's folder")
        with _open_file(single) as file:
            return dict.fromkeys(file.keys(), single)

    def _reader(self, name: str) -> Any:
        path = self.files[name]
        if path not in self._open:
            self._open[path] = _open_file(path)
        return self._open[path]


def load(parts: Sequence[nn.Module], shape: ModelShape, folder: str) -> None:
    """Copies the weights of a folder into this rank's shards. LoRA's matrices are not in the folder and stay unchanged.

    Raises:
        InputError, FileError: the folder has no weights, or is that of another model; one line.
    """
    source = Source(folder)
    names = names_of(source.model_type(), folder)
    with torch.no_grad():
        for name, parameter in plain_names(parts):
            if name.endswith(("lora_a", "lora_b")):
                continue
            if not parameter.is_floating_point():
                continue  # 4-bit weights: ``rows_of`` reads the values to quantise
            location = names.location(shape, "embedding.weight" if shape.tied_embeddings and name == "head.weight" else name)
            if location is None:
                raise InputError(
                    f"--weights {folder}", f"have no place for {name} of model {shape.name}", "plan that folder's model"
                )
            _fill(parameter, location, source)
        for name, buffer in balance_biases(parts, shape):
            if location := names.location(shape, name):
                _fill(buffer, location, source)


def rows_of(folder: str, shape: ModelShape) -> Callable[[str, int, range], Iterator[tuple[int, Tensor]]] | None:
    """A function that reads blocks of whole rows of a matrix: takes its plain name, number of columns and rows; None without a
    folder.
    """
    if not folder:
        return None
    source = Source(folder)
    names = names_of(source.model_type(), folder)

    def blocks(name: str, columns: int, rows: range) -> Iterator[tuple[int, Tensor]]:
        location = names.location(shape, name)
        assert location is not None
        for start in range(rows.start, rows.stop, BLOCK_ROWS):
            lengths = (min(BLOCK_ROWS, rows.stop - start), columns)
            yield start, source.window(location, None, lengths, (start, 0)).float()

    return blocks


def _fill(parameter: Tensor, location: TensorLocation, source: Source) -> None:
    local, lengths, offsets = local_part(parameter)
    shape = tuple(parameter.shape)
    if not local.numel():
        return
    if not location.stacked:
        local.copy_(source.window(location, shape, lengths, offsets))
        return
    for row, expert in enumerate(range(offsets[0], offsets[0] + lengths[0])):
        local[row].copy_(source.window(location.of_expert(expert), shape[1:], lengths[1:], offsets[1:]))


def _stored_shape(location: TensorLocation, shape: tuple[int, ...]) -> list[int]:
    full_shape = [location.rows or shape[0], *shape[1:]]
    return full_shape[::-1] if location.transposed else full_shape


def _open_file(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise FileError(path, f"cannot be read: {error}") from None
