"""Private names of torch's profiler that measurements need."""

import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.tensor.experimental._context_parallel._cp_custom_ops
from torch._C._profiler import _ExtraFields_Allocation
from torch.distributed._tools.fake_collectives import CollectiveOp, collective_ops, sync_ops
from torch.distributed.distributed_c10d import _resolve_process_group


def peak_reserved_bytes(device: torch.device) -> int | None:
    """Peak memory reserved by the caching allocator; None on CPU."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None


def memory_events(profiler: torch.profiler.profile, device: torch.device) -> Iterator[tuple[int, int, int]]:
    """The allocations on a device in a profile: time in nanoseconds, address, and bytes (negative if freed)."""
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    pending = list(profiler.profiler.kineto_results.experimental_event_tree())
    while pending:
        event = pending.pop()
        pending += event.children
        fields = event.extra_fields
        if isinstance(fields, _ExtraFields_Allocation) and fields.device.type == device.type:
            yield event.start_time_ns, fields.ptr, fields.alloc_size


def record_memory_history(max_entries: int | None) -> None:
    """Makes the CUDA allocator record its latest ``max_entries`` allocations and frees with their stacks; None stops it."""
    torch.cuda.memory._record_memory_history(**({"enabled": None} if max_entries is None else {"max_entries": max_entries}))


def dump_memory_snapshot(path: str) -> None:
    """Writes the CUDA allocator's record, for pytorch.org/memory_viz."""
    torch.cuda.memory._dump_snapshot(path)


GROUP, CALL = "Process Group Description", "Collective name"


def call_metadata(event: Any) -> dict[str, str]:
    """torch's metadata of an NCCL collective's call: its ``GROUP`` and its ``CALL``; empty for any other event.

    torch quotes the strings. torch 2.11 does not expose this metadata (seen on an H200), so groups are unknown there.
    """
    found: dict[str, str] = getattr(event, "extra_meta", dict)()
    return {name: found[name].strip('"') for name in (GROUP, CALL) if name in found}


PAIRED_COLLECTIVES = {
    torch.ops.cplib.flex_cp_allgather.default: "all_gather",
    torch.ops.cplib.flex_cp_allgather_backward.default: "reduce_scatter",
}
"""torch operators that contain two equal collectives, one of keys and one of values."""


def group_of_call(operator: Any, arguments: Any) -> str | None:
    """torch's description of the process group in which an operator communicates; None if it does not communicate."""
    if operator in PAIRED_COLLECTIVES:
        return str(_resolve_process_group(arguments[3]).group_desc)
    if operator not in collective_ops or operator in sync_ops:
        return None
    return str(CollectiveOp.get_process_group(operator, arguments).group_desc)


def memory_of(device: torch.device) -> tuple[int, int]:
    """Total bytes of the device's memory, and free bytes. On CPU both are the rank's share of the machine's memory."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total, free
    share = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return share, share
