"""What a profiled step shows: when collectives ran, when nothing else did, and how much memory lived at its fullest.

Total communication is the union of the collectives' intervals; exposed is that union without the union of computation's. By axis
of the mesh it is also without the collectives of the other axes.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from strategist_runtime import compat
from strategist_runtime.collectives import Collective, on_device, on_host
from strategist_runtime.intervals import Interval, length, subtract, union

PIPELINE, WORLD = "pp", "world"
AxisOf = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Figures of one step. ``allocated_bytes`` is the most that was allocated above what lived before the step (CPU only)."""

    step_seconds: float
    communication_seconds: float
    exposed_communication_seconds: float
    exposed_seconds_by_axis: dict[str, float] | None
    pipeline_waits: tuple[float, ...] | None
    shortest_transfer_seconds: float | None
    compute_seconds: float
    allocated_bytes: int


def profiled(step: Callable[[], object], device: torch.device, axis_of: AxisOf = str) -> Profile:
    """Runs ``step`` once under the profiler; ``axis_of`` the description of a process group is the axis that it lies along."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities, profile_memory=device.type == "cpu") as profiler:
        begin = time.perf_counter()
        step()
        compat.synchronize(device)
        seconds = time.perf_counter() - begin
    events = list(profiler.profiler.kineto_results.events())
    collectives, computation = on_device(events) if device.type == "cuda" else on_host(events, compat.collective_calls())
    communication = [piece.interval for piece in collectives]
    waits, shortest = pipeline_waits(collectives, computation, axis_of)
    return Profile(
        step_seconds=seconds,
        communication_seconds=length(union(communication)) / 1e9,
        exposed_communication_seconds=length(subtract(communication, computation)) / 1e9,
        exposed_seconds_by_axis=exposed_by_axis(collectives, computation, axis_of),
        pipeline_waits=waits,
        shortest_transfer_seconds=shortest,
        compute_seconds=length(union(computation)) / 1e9,
        allocated_bytes=_highest(events),
    )


def exposed_by_axis(collectives: Sequence[Collective], computation: Sequence[Interval], axis_of: AxisOf) -> dict[str, float] | None:
    """Seconds in which nothing but collectives of one axis ran; None unless the group of every collective is known."""
    axes = _axes(collectives, axis_of)
    if axes is None:
        return None
    return {axis: length(_alone(axis, axes, computation)) / 1e9 for axis in axes}


def pipeline_waits(
    collectives: Sequence[Collective], computation: Sequence[Interval], axis_of: AxisOf
) -> tuple[tuple[float, ...] | None, float | None]:
    """Seconds that a rank of a pipeline spent in each send, receive and reduction over all ranks with nothing else running; and how
    long the shortest of its sends and receives took. Empty without a pipeline, None unless the group of every collective is known.

    Each ends with the transfer itself. The last of a pipeline's ranks to come to it does not wait, so the shortest on any rank
    tells how long a transfer takes.
    """
    axes = _axes(collectives, axis_of)
    if axes is None or PIPELINE not in axes:
        return (None if axes is None else ()), None
    taken = [*computation, *(piece.interval for axis in axes if axis not in (PIPELINE, WORLD) for piece in axes[axis])]
    waits = []
    for piece in sorted((*axes[PIPELINE], *axes.get(WORLD, ())), key=lambda piece: piece.interval):
        waits.append(length(subtract([piece.interval], taken)) / 1e9)
        taken.append(piece.interval)
    return tuple(waits), min(end - begin for begin, end in (piece.interval for piece in axes[PIPELINE])) / 1e9


def _axes(collectives: Sequence[Collective], axis_of: AxisOf) -> dict[str, list[Collective]] | None:
    axes: dict[str, list[Collective]] = defaultdict(list)
    for piece in collectives:
        if piece.group is None:
            return None
        axes[axis_of(piece.group)].append(piece)
    return axes


def _alone(axis: str, axes: dict[str, list[Collective]], computation: Sequence[Interval]) -> list[Interval]:
    others = [piece.interval for other, pieces in axes.items() if other != axis for piece in pieces]
    return subtract([piece.interval for piece in axes[axis]], [*computation, *others])


def _highest(events: Iterable[Any]) -> int:
    """The highest running sum of allocations and frees."""
    highest = running = 0
    memory = [event for event in events if event.name() == "[memory]"]
    for event in sorted(memory, key=lambda event: event.start_ns()):
        running += event.nbytes()
        highest = max(highest, running)
    return highest


def static_bytes(parts: Iterable[nn.Module], optimizer: torch.optim.Optimizer, others: Iterable[Tensor]) -> int:
    """Bytes that live between steps: parameters, optimizer states, ``others``, and DDP's gradient buckets; shared storage once."""
    parts = tuple(parts)
    tensors = [tensor for part in parts for tensor in (*part.parameters(), *part.buffers())] + list(others)
    tensors += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    storages = {}
    for tensor in tensors:
        storage = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    buckets = 0
    for part in parts:
        if isinstance(part, DistributedDataParallel):
            buckets += sum(parameter.numel() * parameter.element_size() for parameter in part.parameters())
    return sum(storages.values()) + buckets
