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
    """This rank's device; sets it as current."""
    if kind == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def local_device_count(kind: str) -> int | None:
    """The number of devices of this machine; None on CPU, where each process counts as a device."""
    return None if kind == "cpu" else torch.cuda.device_count()


def has_values(tensor: Tensor) -> bool:
    """Whether the tensor has values; tensors of a simulation have shapes only."""
    return not isinstance(tensor, FakeTensor)


def with_values() -> AbstractContextManager[Any]:
    """Context in which new tensors have values even in a simulation, for numbers of ranks that are read at once."""
    return unset_fake_temporarily()


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished all launched work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def staging(*, pinned: bool) -> StagingOptions:
    """Options for copying a state before it is written: into pinned memory if requested and CUDA is available."""
    fast = pinned and torch.cuda.is_available()
    return StagingOptions(use_pinned_memory=fast, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=fast)


def usable_stager(stager: DefaultStager) -> DefaultStager:
    """The stager, or a new one if torch has closed it after its first state, as 2.11 does: a closed stager copies nothing."""
    return stager if stager._state_dict_stager._deepcopy_dispatch else DefaultStager(stager._config)


def reset_peak_memory(device: torch.device) -> None:
    """Resets peak memory: earlier steps also made states that last, and buffers that do not."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Peak memory of tensors in bytes; None if the allocator does not count."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


@cache
def library_versions() -> dict[str, str]:
    """Versions of Python, torch and the device's libraries, and the device's name."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["device"] = torch.cuda.get_device_name()
    return found
