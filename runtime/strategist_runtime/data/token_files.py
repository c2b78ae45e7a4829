"""Memory-mapped files of token ids."""

import mmap
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from strategist.errors import FileError


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """Token ids one after the other in read-only memory, usually a mapped file."""

    memory: memoryview
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.memory) // self.dtype.itemsize

    def tokens(self, first: int, last: int) -> Tensor:
        """Those from ``first`` up to ``last``, int64."""
        size = self.dtype.itemsize
        return torch.frombuffer(bytearray(self.memory[first * size : last * size]), dtype=self.dtype).to(torch.int64)


def mapped(path: Path) -> memoryview:
    """A file's bytes, read from the disk as they are asked for."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError:  # mmap takes no empty file
        raise FileError(path, "is empty") from None
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
