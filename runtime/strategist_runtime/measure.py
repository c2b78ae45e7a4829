"""What a profiled step shows: when collectives ran, when nothing else did, and how much memory lived at its fullest.

Total communication is the union of the collectives' intervals; exposed is that union without the union of computation's.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from strategist_runtime import compat
from strategist_runtime.intervals import Interval, length, subtract, union

COMPUTE_PREFIXES = ("aten::", "fsdp::")
COLLECTIVE_CALLS = ("c10d::", "_c10d_functional", "c10d_functional", "_dtensor::")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Figures of one step. ``allocated_bytes`` is the most that was allocated above what lived before the step (CPU only)."""

    step_seconds: float
    communication_seconds: float
    exposed_communication_seconds: float
    allocated_bytes: int


def profiled(step: Callable[[], object], device: torch.device) -> Profile:
    """Runs ``step`` once under the profiler."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities, profile_memory=device.type == "cpu") as profiler:
        begin = time.perf_counter()
        step()
        compat.synchronize(device)
        seconds = time.perf_counter() - begin
    events = list(profiler.profiler.kineto_results.events())
    communication, computation = _device_work(events) if device.type == "cuda" else _host_work(events)
    return Profile(
        step_seconds=seconds,
        communication_seconds=length(union(communication)) / 1e9,
        exposed_communication_seconds=length(subtract(communication, computation)) / 1e9,
        allocated_bytes=_highest(events),
    )


def _device_work(events: Iterable[Any]) -> tuple[list[Interval], list[Interval]]:
    """On a GPU: NCCL's kernels, and every other kernel and copy."""
    communication: list[Interval] = []
    computation: list[Interval] = []
    for event in events:
        if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0:
            (communication if "nccl" in event.name().lower() else computation).append(_interval(event))
    return communication, computation


def _host_work(events: list[Any]) -> tuple[list[Interval], list[Interval]]:
    """On CPU: gloo's events, which its own threads record as they work; and operators of the other threads without the calls
    of collectives inside them, which only wait."""
    collectives = [event for event in events if event.name().startswith("gloo:")]
    gloo_threads = {event.start_thread_id() for event in collectives}
    operators: dict[int, list[Interval]] = defaultdict(list)
    waits: dict[int, list[Interval]] = defaultdict(list)
    for event in events:
        if event.start_thread_id() in gloo_threads:
            continue
        if event.name().startswith(COMPUTE_PREFIXES):
            operators[event.start_thread_id()].append(_interval(event))
        elif event.name().startswith(COLLECTIVE_CALLS):
            waits[event.start_thread_id()].append(_interval(event))
    computation = [part for thread, intervals in operators.items() for part in subtract(intervals, waits[thread])]
    return [_interval(event) for event in collectives], computation


def _highest(events: Iterable[Any]) -> int:
    """The highest running sum of allocations and frees."""
    highest = running = 0
    memory = [event for event in events if event.name() == "[memory]"]
    for event in sorted(memory, key=lambda event: event.start_ns()):
        running += event.nbytes()
        highest = max(highest, running)
    return highest


def static_bytes(model: nn.Module, optimizer: torch.optim.Optimizer, others: Iterable[Tensor]) -> int:
    """Bytes that live between steps: parameters, optimizer states, ``others``, and DDP's gradient buckets; shared storage once."""
    tensors = [*model.parameters(), *model.buffers(), *others]
    tensors += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    storages = {}
    for tensor in tensors:
        storage = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    buckets = 0
    if isinstance(model, DistributedDataParallel):
        buckets = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return sum(storages.values()) + buckets


def _interval(event: Any) -> Interval:
    return event.start_ns(), event.start_ns() + event.duration_ns()
