"""Data sets of token ids: synthetic, from files of tokens, or from data sets on disk."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from numpy.lib.format import open_memmap
from torch import Tensor

from strategist.errors import FileError, InputError
from strategist_runtime.data.arrow import arrow_token_files
from strategist_runtime.data.sample import Sample
from strategist_runtime.data.shuffle import mixed
from strategist_runtime.data.token_files import TokenFile, mapped

STRIDES = 4
SMALL_VOCABULARY = 2**16
"""Largest vocabulary whose tokens fit in 16 bits, the usual type of token files."""

NUMPY_TYPES = {"<u2": torch.uint16, "<u4": torch.uint32, "<i4": torch.int32, "<i8": torch.int64}
BINARY_TYPES = {"uint16": torch.uint16, "uint32": torch.uint32, "int32": torch.int32}


@dataclass(frozen=True, kw_only=True)
class SyntheticTokens:
    """Synthetic samples that can be learned: each sample counts up by its own small stride, modulo the vocabulary."""

    seed: int
    seq_len: int
    vocab_size: int
    samples: int | None = None

    def trained(self, number: int) -> int:
        """The number of targets in the loss: all of them."""
        return self.seq_len

    def sample(self, number: int) -> Sample:
        """A sample that counts up."""
        random_bits = mixed(self.seed, number)
        start, stride = random_bits % self.vocab_size, 1 + (random_bits >> 48) % STRIDES
        return Sample(ids=(start + stride * torch.arange(self.seq_len + 1)) % self.vocab_size)


class Tokens:
    """All tokens of several files as one sequence, split into samples that overlap by one token: the last target of one is the
    first input of the next. ``end`` is the token that ends a document; None if each sample is one document.
    """

    def __init__(self, path: str, files: Iterable[TokenFile], seq_len: int, vocab_size: int, end: int | None = None) -> None:
        self.path, self.seq_len, self.vocab_size, self.end = path, seq_len, vocab_size, end
        self.files = tuple(file for file in files if len(file))
        self.ends = tuple(accumulate(map(len, self.files)))
        tokens = self.ends[-1] if self.ends else 0
        self.samples = (tokens - 1) // seq_len
        if self.samples < 1:
            raise InputError(f"--data {path}", f"its {tokens} tokens make no sample of {seq_len + 1}", "give it more text")

    def trained(self, number: int) -> int:
        """The number of targets in the loss: all of them."""
        return self.seq_len

    def sample(self, number: int) -> Sample:
        """The T + 1 tokens from ``number`` x T on.

        Raises:
            InputError: a token is not in the vocabulary.
        """
        first = number * self.seq_len
        ids = torch.cat(list(self._parts(first, first + self.seq_len + 1)))
        check_vocabulary(ids, self.path, self.vocab_size)
        return Sample.of(ids, end=self.end)

    def _parts(self, first: int, last: int) -> Iterator[Tensor]:
        for index in range(bisect_right(self.ends, first), len(self.files)):
            begin = self.ends[index] - len(self.files[index])
            if begin >= last:
                return
            yield self.files[index].tokens(max(first, begin) - begin, min(last, self.ends[index]) - begin)


def check_vocabulary(ids: Tensor, path: str, vocab_size: int) -> None:
    """Checks that all ids are below ``vocab_size``.

    Raises:
        InputError: an id is not in the vocabulary.
    """
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        law = f"holds the token {low if low < 0 else high}, the model knows {vocab_size}"
        raise InputError(f"--data {path}", law, "take the tokenizer of the model, or say what type the tokens have")


def open_tokens(path: str, token_type: str, *, seq_len: int, vocab_size: int, end: int | None = None) -> Tokens:
    """The tokens in a file or folder.

    Raises:
        InputError, FileError: the file or folder is missing or has no readable tokens.
    """
    file = Path(path)
    if file.is_dir():
        files: Sequence[TokenFile] = arrow_token_files(file)
    elif file.suffix == ".npy":
        files = [_numpy_file(file)]
    else:
        files = [_binary_file(file, token_type, vocab_size)]
    return Tokens(path, files, seq_len, vocab_size, end)


def _binary_file(path: Path, token_type: str, vocab_size: int) -> TokenFile:
    """A file of raw tokens. Their type is ``token_type`` if given, otherwise that in ``<name>.json`` next to the file, otherwise
    the one that fits the vocabulary.
    """
    default_type = "uint16" if vocab_size <= SMALL_VOCABULARY else "uint32"
    name = token_type or _read_sidecar(path.with_suffix(".json")).get("dtype") or default_type
    if name not in BINARY_TYPES:
        raise FileError(path.with_suffix(".json"), f"dtype {name} is not one of {', '.join(BINARY_TYPES)}")
    memory, size = mapped(path), BINARY_TYPES[name].itemsize
    if len(memory) % size:
        raise FileError(path, f"has {len(memory)} bytes, which are no whole tokens of {size}; say their type with --data-type")
    return TokenFile(memory=memory, dtype=BINARY_TYPES[name])


def _read_sidecar(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(path, f"is not a JSON document: {error}") from None
    return found if isinstance(found, dict) else {}


def _numpy_file(path: Path) -> TokenFile:
    """One row of whole numbers, as ``numpy.save`` writes it."""
    try:
        row = open_memmap(path, mode="r")
    except (OSError, ValueError) as error:
        raise FileError(path, f"is not a whole file of numpy.save: {getattr(error, 'strerror', None) or error}") from None
    data_type = row.dtype.str
    if data_type not in NUMPY_TYPES or row.ndim != 1:
        raise FileError(path, f"holds {data_type} of shape {row.shape}: one row of {', '.join(NUMPY_TYPES)} is needed")
    return TokenFile(memory=row.data.cast("B"), dtype=NUMPY_TYPES[data_type])
