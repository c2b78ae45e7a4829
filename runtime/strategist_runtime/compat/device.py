"""Device differences: selection, synchronisation and memory of the rank's device; tensors without values (fake, meta)."""

import platform
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions


def this_device(kind: str, local_rank: int) -> torch.device:
    """This rank's device, made current."""
    if kind == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def devices_here(kind: str) -> int | None:
    """How many devices this machine has; None where a process is a device of its own."""
    return None if kind == "cpu" else torch.cuda.device_count()


def has_values(tensor: Tensor) -> bool:
    """Whether there are numbers in it: in a simulation tensors have shapes only."""
    return not isinstance(tensor, FakeTensor)


def with_values() -> AbstractContextManager[Any]:
    """Within, also what a simulation makes has values: numbers of ranks, which are read next."""
    return unset_fake_temporarily()


def synchronize(on: torch.device) -> None:
    """Waits until the device has done what was asked of it."""
    if on.type == "cuda":
        torch.cuda.synchronize(on)


def staging(*, pinned: bool) -> StagingOptions:
    """How a state is copied before it is written: into page-locked memory where there is a device that copies into it."""
    fast = pinned and torch.cuda.is_available()
    return StagingOptions(use_pinned_memory=fast, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=fast)


def reopened(stager: DefaultStager) -> DefaultStager:
    """The stager, or one like it where torch has closed it after its first state, as 2.11 does: a closed one copies nothing."""
    return stager if stager._state_dict_stager._deepcopy_dispatch else DefaultStager(stager._config)


def forget_peak(on: torch.device) -> None:
    """Peak memory counts from here: the steps before it made states that last, and buffers that do not."""
    if on.type == "cuda":
        torch.cuda.reset_peak_memory_stats(on)


def peak_bytes(on: torch.device) -> int | None:
    """The most that tensors held at a time; None where the allocator does not count."""
    return torch.cuda.max_memory_allocated(on) if on.type == "cuda" else None


@cache
def library_versions() -> dict[str, str]:
    """What ran: Python, torch, and the device's libraries."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["device"] = torch.cuda.get_device_name()
    return found
