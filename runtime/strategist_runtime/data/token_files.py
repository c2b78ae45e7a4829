"""Memory-mapped files of token ids."""

import mmap
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from strategist.errors import FileError


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """Consecutive token ids in read-only memory, usually a mapped file."""

    memory: memoryview
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.memory) // self.dtype.itemsize

    def tokens(self, first: int, last: int) -> Tensor:
        """Token ids from ``first`` up to (not including) ``last``, int64."""
        size = self.dtype.itemsize
        return torch.frombuffer(bytearray(self.memory[first * size : last * size]), dtype=self.dtype).to(torch.int64)


def mapped(path: Path) -> memoryview:
    """A file's bytes, memory-mapped."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError:  # mmap rejects empty files
        raise FileError(path, "is empty") from None
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
