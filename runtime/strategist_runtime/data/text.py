"""Texts of token ids: synthetic, out of files of tokens, or out of data sets on disk."""

import ast
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strategist.errors import FileError, InputError
from strategist_runtime.data.arrow import arrow_token_files
from strategist_runtime.data.sample import Sample
from strategist_runtime.data.shuffle import mixed
from strategist_runtime.data.token_files import TokenFile, mapped

STRIDES = 4
SMALL_VOCABULARY = 2**16
"""Up to here tokens fit in 16 bits, which is how files of them are usually written."""

NUMPY_TYPES = {"<u2": torch.uint16, "<u4": torch.uint32, "<i4": torch.int32, "<i8": torch.int64}
BINARY_TYPES = {"uint16": torch.uint16, "uint32": torch.uint32, "int32": torch.int32}


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Text that can be learned: each sample counts up by its own small stride, modulo the vocabulary."""

    seed: int
    seq_len: int
    vocab_size: int
    samples: int | None = None

    def trained(self, number: int) -> int:
        """Every target counts."""
        return self.seq_len

    def sample(self, number: int) -> Sample:
        """Counts up."""
        drawn = mixed(self.seed, number)
        start, stride = drawn % self.vocab_size, 1 + (drawn >> 48) % STRIDES
        return Sample(ids=(start + stride * torch.arange(self.seq_len + 1)) % self.vocab_size)


class Tokens:
    """All tokens of some pieces as one text, cut into samples that share their ends: the last target of one is the next's first.
    ``end`` is the token that ends a document, None where a sample is one."""

    def __init__(self, place: str, pieces: Iterable[TokenFile], seq_len: int, vocab_size: int, end: int | None = None) -> None:
        self.place, self.seq_len, self.vocab_size, self.end = place, seq_len, vocab_size, end
        self.pieces = tuple(piece for piece in pieces if len(piece))
        self.ends = tuple(accumulate(map(len, self.pieces)))
        tokens = self.ends[-1] if self.ends else 0
        self.samples = (tokens - 1) // seq_len
        if self.samples < 1:
            raise InputError(f"--data {place}", f"its {tokens} tokens make no sample of {seq_len + 1}", "give it more text")

    def trained(self, number: int) -> int:
        """Every target counts."""
        return self.seq_len

    def sample(self, number: int) -> Sample:
        """The tokens from ``number`` x T on.

        Raises:
            InputError: one of them is none of the vocabulary.
        """
        first = number * self.seq_len
        found = torch.cat(list(self._parts(first, first + self.seq_len + 1)))
        check_vocabulary(found, self.place, self.vocab_size)
        return Sample.of(found, end=self.end)

    def _parts(self, first: int, last: int) -> Iterator[Tensor]:
        for index in range(bisect_right(self.ends, first), len(self.pieces)):
            begin = self.ends[index] - len(self.pieces[index])
            if begin >= last:
                return
            yield self.pieces[index].tokens(max(first, begin) - begin, min(last, self.ends[index]) - begin)


def check_vocabulary(ids: Tensor, place: str, vocab_size: int) -> None:
    """Refuses ids that a model of so many tokens does not know.

    Raises:
        InputError: one of them is none of the vocabulary.
    """
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        law = f"holds the token {low if low < 0 else high}, the model knows {vocab_size}"
        raise InputError(f"--data {place}", law, "take the tokenizer of the model, or say what type the tokens have")


def open_tokens(place: str, token_type: str, *, seq_len: int, vocab_size: int, end: int | None = None) -> Tokens:
    """The tokens in a file or folder.

    Raises:
        InputError, FileError: there is nothing that can be read.
    """
    path = Path(place)
    if path.is_dir():
        pieces: Sequence[TokenFile] = arrow_token_files(path)
    elif path.suffix == ".npy":
        pieces = [_numpy_piece(path)]
    else:
        pieces = [_binary_piece(path, token_type, vocab_size)]
    return Tokens(place, pieces, seq_len, vocab_size, end)


def _binary_piece(path: Path, token_type: str, vocab_size: int) -> TokenFile:
    """Tokens and nothing else, in the type that was said, that ``<name>.json`` beside it says, or that fits the vocabulary."""
    fits = "uint16" if vocab_size <= SMALL_VOCABULARY else "uint32"
    name = token_type or _sidecar(path.with_suffix(".json")).get("dtype") or fits
    if name not in BINARY_TYPES:
        raise FileError(path.with_suffix(".json"), f"dtype {name} is not one of {', '.join(BINARY_TYPES)}")
    memory, size = mapped(path), BINARY_TYPES[name].itemsize
    if len(memory) % size:
        raise FileError(path, f"has {len(memory)} bytes, which are no whole tokens of {size}; say their type with --data-type")
    return TokenFile(memory=memory, dtype=BINARY_TYPES[name])


def _sidecar(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(path, f"is not a JSON document: {error}") from None
    return found if isinstance(found, dict) else {}


def _numpy_piece(path: Path) -> TokenFile:
    """One row of whole numbers, as ``numpy.save`` writes it.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    """
    memory = mapped(path)
    if bytes(memory[:6]) != b"\x93NUMPY":
        raise FileError(path, "is no file of numpy.save")
    width = 2 if memory[6] == 1 else 4
    begin = 8 + width + int.from_bytes(memory[8 : 8 + width], "little")
    try:
        header = ast.literal_eval(bytes(memory[8 + width : begin]).decode("latin-1").strip())
        kind, shape, fortran = header["descr"], header["shape"], header["fortran_order"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError):
        raise FileError(path, "has no header of numpy.save") from None
    if kind not in NUMPY_TYPES or len(shape) != 1 or fortran:
        raise FileError(path, f"holds {kind} of shape {shape}: one row of {', '.join(NUMPY_TYPES)} is needed")
    dtype = NUMPY_TYPES[kind]
    if len(memory) - begin != shape[0] * dtype.itemsize:
        raise FileError(path, f"is cut short: {shape[0]} tokens were saved")
    return TokenFile(memory=memory[begin:], dtype=dtype)
