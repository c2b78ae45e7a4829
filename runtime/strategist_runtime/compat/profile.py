"""Private names of torch's profiler that measurements need."""

import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.tensor.experimental._context_parallel._cp_custom_ops
from torch._C._profiler import _ExtraFields_Allocation
from torch.distributed._tools.fake_collectives import CollectiveOp, collective_ops, sync_ops
from torch.distributed.distributed_c10d import _resolve_process_group


def peak_reserved_bytes(on: torch.device) -> int | None:
    """The most that the caching allocator held at a time; None where there is none."""
    return torch.cuda.max_memory_reserved(on) if on.type == "cuda" else None


def memory_notes(profiler: torch.profiler.profile, on: torch.device) -> Iterator[tuple[int, int, int]]:
    """What a profile notes of a device: when in nanoseconds, at which address, and how many bytes, negative where freed."""
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        fields = event.extra_fields
        if isinstance(fields, _ExtraFields_Allocation) and fields.device.type == on.type:
            yield event.start_time_ns, fields.ptr, fields.alloc_size


def record_memory_history(most: int | None) -> None:
    """Has the CUDA allocator note its latest ``most`` allocations and frees with their stacks; None stops it."""
    torch.cuda.memory._record_memory_history(**({"enabled": None} if most is None else {"max_entries": most}))


def dump_memory_snapshot(path: str) -> None:
    """Writes what the CUDA allocator noted, for pytorch.org/memory_viz."""
    torch.cuda.memory._dump_snapshot(path)


GROUP, CALL = "Process Group Description", "Collective name"


def call_notes(event: Any) -> dict[str, str]:
    """What torch notes at the call of a collective on NCCL, its ``GROUP`` and its ``CALL``; empty for any other event.

    Its strings stand in quotation marks. torch 2.11 keeps the notes to itself (seen on an H200), so nothing tells a group there.
    """
    found: dict[str, str] = getattr(event, "extra_meta", dict)()
    return {name: found[name].strip('"') for name in (GROUP, CALL) if name in found}


IN_PAIRS = {
    torch.ops.cplib.flex_cp_allgather.default: "all_gather",
    torch.ops.cplib.flex_cp_allgather_backward.default: "reduce_scatter",
}
"""torch's operators that hide two equal collectives, one of keys and one of values."""


def group_of_call(operator: Any, arguments: Any) -> str | None:
    """torch's description of the process group in which an operator communicates; None for what moves nothing."""
    if operator in IN_PAIRS:
        return str(_resolve_process_group(arguments[3]).group_desc)
    if operator not in collective_ops or operator in sync_ops:
        return None
    return str(CollectiveOp.get_process_group(operator, arguments).group_desc)


def memory_of(on: torch.device) -> tuple[int, int]:
    """Bytes of the device, and those that a program can still allocate; of a CPU rank, its share of the machine."""
    if on.type == "cuda":
        free, total = torch.cuda.mem_get_info(on)
        return total, free
    share = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return share, share
