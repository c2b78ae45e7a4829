"""Safetensors files of a model, each written as soon as all its tensors are complete."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from strategist.contract.model import ModelShape
from strategist_runtime.weights.hugging_face import ParameterNames, TensorLocation
from strategist_runtime.weights.source import INDEX, SINGLE

FILE_BYTES = 5 * 10**9
"""Size limit of a file, unless a single tensor is larger; as in transformers up to version 4."""


class Shards:
    """Writer of the files. ``shapes`` are the parameters by plain name, in the order in which they will be added."""

    def __init__(self, names: ParameterNames, model: ModelShape, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> None:
        self.names, self.model, self.dtype = names, model, dtype
        self.shapes: dict[str, list[int]] = {}
        self.missing: dict[str, int] = {}
        for name, shape in shapes.items():
            for location, lengths in self._locations(name, shape):
                stored_shape = [location.rows or lengths[0], *lengths[1:]]
                self.shapes[location.name] = stored_shape[::-1] if location.transposed else stored_shape
                self.missing[location.name] = math.prod(stored_shape)
        self.file_of = dict(self._file_numbers())
        self.tensors: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor, folder: Path) -> None:
        """Copies a whole parameter into its place, and writes its files that are now complete."""
        locations = list(self._locations(name, tuple(values.shape)))
        stacked = values.dim() == len(self.shapes[locations[0][0].name]) + 1
        for index, (location, _) in enumerate(locations):
            part = values[index] if stacked else values
            target = self.tensors.get(location.name)
            if target is None:
                target = self.tensors[location.name] = torch.empty(self.shapes[location.name], dtype=self.dtype)
            rows = target.t() if location.transposed else target
            rows[location.first : location.first + len(part)] = part
            self.missing[location.name] -= part.numel()
            self._write_if_complete(self.file_of[location.name], folder)

    def finish(self, folder: Path) -> None:
        """Writes the index if there is more than one file."""
        if self.count > 1:
            files = {name: self._file(number) for name, number in self.file_of.items()}
            size = sum(math.prod(shape) for shape in self.shapes.values()) * self.dtype.itemsize
            index = {"metadata": {"total_size": size}, "weight_map": files}
            (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")

    @property
    def count(self) -> int:
        return max(self.file_of.values(), default=0) + 1

    def _locations(self, name: str, shape: tuple[int, ...]) -> Iterator[tuple[TensorLocation, tuple[int, ...]]]:
        """The locations of a parameter with the shape of each; one location per expert if experts are stacked."""
        location = self.names.location(self.model, name)
        assert location is not None, name
        if not location.stacked:
            yield location, shape
            return
        for expert in range(shape[0]):
            yield location.of_expert(expert), shape[1:]

    def _file_numbers(self) -> Iterator[tuple[str, int]]:
        """The file number of each tensor: a new file where a tensor would exceed the limit."""
        number, filled = 0, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape) * self.dtype.itemsize
            if filled and filled + size > FILE_BYTES:
                number, filled = number + 1, 0
            filled += size
            yield name, number

    def _write_if_complete(self, number: int, folder: Path) -> None:
        """Writes a file if none of its elements is missing."""
        members = [name for name, file_number in self.file_of.items() if file_number == number]
        if not any(self.missing[name] for name in members):
            save_file({name: self.tensors.pop(name) for name in members}, folder / self._file(number), metadata={"format": "pt"})

    def _file(self, number: int) -> str:
        return SINGLE if self.count == 1 else f"model-{number + 1:05}-of-{self.count:05}.safetensors"
