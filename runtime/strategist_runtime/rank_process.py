"""The process of a rank: it dies with its parent, ends on request, and stays within its memory limit. Free of torch, so that it
starts before torch is imported.
"""

import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # linux/prctl.h
M_MMAP_THRESHOLD = -3  # glibc malloc.h
DIRECT_BYTES = 2**18
"""malloc maps blocks from this size on from the kernel one by one."""


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent ends, for any reason. Linux only; elsewhere it does nothing."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl took effect
        os._exit(1)


def on_terminate(callback: Callable[[], None]) -> None:
    """Calls ``callback`` from a separate thread on each SIGTERM, so at once even while the main thread waits inside a collective.

    Call it before any other thread starts: threads inherit the blocked signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        while True:
            signal.sigwait({signal.SIGTERM})
            callback()

    threading.Thread(target=wait, daemon=True).start()


def leave(code: int = 0) -> NoReturn:
    """Ends this process at once, without any clean-up. Clean-up could wait for peers; and gloo's threads abort the process if
    they drop a Python object, such as the mode in which a collective was called, while the interpreter shuts down (torch
    2.13).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def count_memory_closely() -> None:
    """Makes freed tensor memory return to the kernel at once, and MKL keep no buffers, so that the kernel's count is the live
    memory. This costs page faults. Call it before torch is imported, when MKL reads its setting.
    """
    os.environ["MKL_DISABLE_FAST_MM"] = "1"
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, other C libraries may not
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, DIRECT_BYTES)


def limit_memory(capacity_bytes: int) -> None:
    """Limits this process to ``capacity_bytes`` more than it has now; further allocations fail. Linux only.

    The limit counts writable private memory (RLIMIT_DATA), not address space and not resident memory. Where a tensor does not
    fit, the error has room to be raised. Where a few bytes do not fit, CPython 3.11 may abort or loop: it repeats the unwinding
    of an exception until the position of the failed instruction, an integer, can be allocated.
    """
    if sys.platform != "linux":
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = data_bytes() + capacity_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def remove_memory_limit() -> None:
    """Lifts the memory limit, for example so that a rank that ran out of memory can still write its record."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def data_bytes() -> int:
    """Writable private memory of this process, as the kernel counts it against RLIMIT_DATA."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status names no VmData")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is a failed allocation. CUDA has its own error (``torch.OutOfMemoryError``), the CPU's allocators have
    several.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    markers = (
        "can't allocate memory", "Cannot allocate memory", "std::bad_alloc", "out of memory", "not enough memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
    )  # fmt: skip
    return isinstance(error, RuntimeError | OSError) and any(marker in str(error) for marker in markers)
