"""Memory of a process as the kernel counts it."""

import mmap
import subprocess
import sys

import pytest
from strategist_runtime.rank_process import data_bytes, is_out_of_memory

PROGRAM = """
from strategist_runtime import rank_process
rank_process.limit_memory(64 * 2**20)
kept = bytearray(48 * 2**20)
try:
    bytearray(32 * 2**20)
except MemoryError:
    rank_process.remove_memory_limit()
    more = bytearray(32 * 2**20)
    print("held and released")
"""


def test_allocations_beyond_the_limit_fail_until_it_is_released():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout == "held and released\n", done.stderr


def test_process_memory_is_measured_in_bytes():
    # A mapping of its own: the allocator may answer from pages that it already holds.
    size, before = 64 * 2**20, data_bytes()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        assert size <= data_bytes() - before < 1.5 * size


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("Connection closed by peer"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_failed_allocations_are_distinguished_from_other_errors(error, expected):
    assert is_out_of_memory(error) == expected
