"""Process groups and their collectives, through private names where torch has no public ones."""

import json
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch._C._distributed_c10d import _dump_fr_trace_json  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _set_pg_timeout, _world

from strategist_runtime.compat.device import synchronize
from strategist_runtime.compat.host_staging import BACKEND, DEVICES, HostStagedGroup

CHECKPOINT = "checkpoint"
COLLECTIVE_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def stage_through_host() -> None:
    """Has every process group that is made from now on, but a checkpoint's, exchange tensors through host memory."""
    dist.Backend.register_backend(BACKEND, HostStagedGroup, devices=list(DEVICES))
    COLLECTIVE_BACKENDS.update(dict.fromkeys(DEVICES, BACKEND))


def set_timeouts(seconds: float) -> None:
    """The deadline of every later collective of steps in every process group; a device mesh makes its groups with 30 minutes."""
    for group in list(_world.pg_map):
        if group.group_desc != CHECKPOINT:
            _set_pg_timeout(timedelta(seconds=seconds), group)


def checkpoint_group(seconds: float) -> dist.ProcessGroup:
    """A group of all ranks beside those of the device, which moves no tensor of it; its collectives wait for disks."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=seconds), group_desc=CHECKPOINT)


def initialize_device_and_groups(on: torch.device) -> None:
    """Starts what the first use of a device or of a process group would start, so that it counts as no trial's memory."""
    square = torch.ones(512, 512, device=on)
    for dtype in (torch.float32, torch.bfloat16):
        _ = square.to(dtype) @ square.to(dtype)
    for group in list(_world.pg_map):
        dist.all_reduce(square, group=group)
    synchronize(on)


def collective_calls() -> list[tuple[int, str, str]]:
    """The latest collectives of this process in the order of asking: nanoseconds since 1970, the profiler's name for it, and the
    description of its process group.

    From torch's flight recorder, which always runs and holds 2000 calls; it leaves out what gloo sends and receives.
    """
    dump = json.loads(_dump_fr_trace_json(True, False))
    return [(call["time_created_ns"], call["profiling_name"], call["process_group"][1]) for call in dump.get("entries", ())]


def unflatten_mesh(mesh: DeviceMesh, sizes: dict[str, int], apart: dict[str, Any] | None) -> DeviceMesh:
    """A mesh of one dimension in several of these sizes; those in ``apart`` have groups of their own, of these back ends."""
    return mesh._unflatten(0, tuple(sizes.values()), tuple(sizes), backend_override=apart)


def all_to_all(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Equally many rows to each rank; has arrived when it returns."""
    return functional.wait_tensor(functional.all_to_all_single(tensor, None, None, group))


def all_to_all_rows(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    """So many rows to and from each rank, whose gradients take the way back."""
    return functional.wait_tensor(functional.all_to_all_single_autograd(rows, received, sent, group))
