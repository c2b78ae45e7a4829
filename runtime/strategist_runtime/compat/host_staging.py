"""Process groups whose messages go through host memory, for ranks that share a GPU.

NCCL refuses two ranks on one GPU; gloo supports no GPU tensors in functional collectives and in point-to-point messages.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
from torch.distributed import ProcessGroup, ProcessGroupGloo

from strategist_runtime.compat.dispatch import leaves, tree_map_only

BACKEND = "host_staged"
DEVICES = ("cpu", "cuda")
CPU = torch.device("cpu")
COLLECTIVES = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter",
    "allgather", "allgather_coalesced", "_allgather_base", "allgather_into_tensor_coalesced",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "alltoall", "alltoall_base",
    "all_gather_single", "all_gather_single_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "all_to_all_single",
)  # fmt: skip
"""Methods of a group that write their first argument; torch 2.11 does not have the last five."""


class HostStagedGroup(ProcessGroup):
    """A process group that exchanges copies of tensors in host memory, over gloo.

    Copies and the current stream wait for each other. A collective is complete when it returns; so is the copy of a tensor that
    is sent. A received tensor is valid after its work was waited for.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch declares another one only
        gloo, kind = ProcessGroupGloo(store, rank, size, timeout=timeout), ProcessGroup.BackendType.GLOO
        self.host = ProcessGroup(store, rank, size)
        self.host._set_default_backend(kind)
        self.host._register_backend(CPU, kind, gloo)
        self._set_default_backend(kind)  # torch queries a group's back ends for its devices, timeout and name
        for device in DEVICES:
            self._register_backend(torch.device(device), kind, gloo)

    def _set_group_name(self, name: Any) -> None:
        super()._set_group_name(name)
        self.host._set_group_name(name)

    def _set_group_desc(self, desc: str) -> None:
        super()._set_group_desc(desc)
        self.host._set_group_desc(desc)

    def barrier(self, opts: Any = None) -> dist.Work:
        """A barrier of the processes; GPU work needs none, since collectives are complete when they return."""
        return self.host.barrier()

    def send(self, tensors: list[Tensor], dstRank: int, tag: int) -> dist.Work:
        """Asynchronous send; the caller may change the tensors at once."""
        return self.host.send(_on_host(tensors), dstRank, tag)

    def recv(self, tensors: list[Tensor], srcRank: int, tag: int) -> dist.Work:
        """Asynchronous receive."""
        staged = [_host_buffer(tensor) for tensor in tensors]
        return _ReceiveWork(self.host.recv(staged, srcRank, tag), staged, tensors)


class _ReceiveWork(dist.Work):
    def __init__(self, work: dist.Work, staged: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.work, self.staged, self.tensors = work, staged, tensors

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the message; the first call copies it into the tensors, later ones do nothing more."""
        done = self.work.wait(timeout)
        _copy(self.staged, self.tensors)
        self.staged, self.tensors = (), ()
        return done

    def is_completed(self) -> bool:
        return self.work.is_completed()


def _staged_collective(name: str) -> Callable[..., dist.Work]:
    def collective(group: HostStagedGroup, written: Any, *others: Any, **options: Any) -> dist.Work:
        staged = _on_host(written)
        getattr(group.host, name)(staged, *_on_host(others), **options).wait()
        _copy(leaves(staged), leaves(written))
        future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        future.set_result(leaves(written))
        return _create_work_from_future(future)

    return collective


for name in COLLECTIVES:
    if hasattr(ProcessGroup, name):
        setattr(HostStagedGroup, name, _staged_collective(name))


@torch.no_grad()
def _on_host(arguments: Any) -> Any:
    """The arguments, with each tensor replaced by a copy in host memory."""
    return tree_map_only(Tensor, lambda tensor: _host_buffer(tensor).copy_(tensor), arguments)


def _host_buffer(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device=CPU, memory_format=torch.contiguous_format)


@torch.no_grad()
def _copy(staged: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    for source, target in zip(staged, tensors, strict=True):
        target.copy_(source)
