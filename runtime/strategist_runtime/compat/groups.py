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
    """Makes every later process group, except a checkpoint's, exchange tensors through host memory."""
    dist.Backend.register_backend(BACKEND, HostStagedGroup, devices=list(DEVICES))
    COLLECTIVE_BACKENDS.update(dict.fromkeys(DEVICES, BACKEND))


def set_timeouts(seconds: float) -> None:
    """Sets the timeout of later collectives in every process group except a checkpoint's; device meshes make their groups with
    30 minutes.
    """
    for group in list(_world.pg_map):
        if group.group_desc != CHECKPOINT:
            _set_pg_timeout(timedelta(seconds=seconds), group)


def checkpoint_group(seconds: float) -> dist.ProcessGroup:
    """A separate gloo group of all ranks for checkpoints. It transfers no device tensors; its collectives wait for disks."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=seconds), group_desc=CHECKPOINT)


def initialize_device_and_groups(device: torch.device) -> None:
    """Uses the device and every process group once, so that their one-time memory does not count as a trial's."""
    matrix = torch.ones(512, 512, device=device)
    for dtype in (torch.float32, torch.bfloat16):
        _ = matrix.to(dtype) @ matrix.to(dtype)
    for group in list(_world.pg_map):
        dist.all_reduce(matrix, group=group)
    synchronize(device)


def collective_calls() -> list[tuple[int, str, str]]:
    """The latest collectives of this process in call order: time in nanoseconds since 1970, the profiler's name, and the
    description of the process group.

    From torch's flight recorder, which is always on and holds 2000 calls; it leaves out gloo's sends and receives.
    """
    dump = json.loads(_dump_fr_trace_json(True, False))
    return [(call["time_created_ns"], call["profiling_name"], call["process_group"][1]) for call in dump.get("entries", ())]


def unflatten_mesh(mesh: DeviceMesh, sizes: dict[str, int], separate_backends: dict[str, Any] | None) -> DeviceMesh:
    """A 1-D mesh unfolded into dimensions of these sizes; those in ``separate_backends`` get separate process groups, with
    these back ends.
    """
    return mesh._unflatten(0, tuple(sizes.values()), tuple(sizes), backend_override=separate_backends)


def all_to_all(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """All-to-all with equally many rows for each rank; complete when it returns."""
    return functional.wait_tensor(functional.all_to_all_single(tensor, None, None, group))


def all_to_all_rows(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    """All-to-all with the given numbers of rows by rank; its backward pass makes the reverse exchange."""
    return functional.wait_tensor(functional.all_to_all_single_autograd(rows, received, sent, group))
