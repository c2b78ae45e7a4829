"""Figures of a profiled step: communication time, exposed communication time, and peak memory.

Communication is the union of the collectives' intervals. Exposed communication is that union without the computation; by mesh
axis also without the collectives of other axes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from strategist.contract.measurement import ProfiledStep
from strategist_runtime.compat import profile as compat_profile
from strategist_runtime.compat.device import synchronize
from strategist_runtime.compat.groups import collective_calls
from strategist_runtime.measure import memory
from strategist_runtime.measure.collectives import Activity, on_device, on_host
from strategist_runtime.measure.intervals import length, subtract, union
from strategist_runtime.measure.kernel_kinds import OPTIMIZER, interval, spans_of
from strategist_runtime.measure.parts import AxisOf, collectives_by_axis, exposed_by_axis, partition_step, pipeline_waits
from strategist_runtime.measure.spans import DATA, HOST_UPDATE, PASSES, STEP, UPDATE, span


@dataclass(frozen=True, kw_only=True)
class Profile(ProfiledStep):
    """Figures of one step.

    ``time`` by part adds up to the step. Figures by axis, and ``time``, are None if the group of any collective is unknown.
    ``allocated_bytes`` is the peak above the memory before the step.
    """

    allocated_bytes: int
    activity: Activity
    memory_curve: Sequence[tuple[int, int]] = field(default=(), repr=False)


OnTrace = Callable[[Any], None]
"""Callback that gets the profiler, for example to write its trace."""


def profiled(step: Callable[[], object], device: torch.device, axis_of: AxisOf = str, on_trace: OnTrace | None = None) -> Profile:
    """Runs ``step`` once under the profiler; ``axis_of`` maps the description of a process group to its mesh axis."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities, profile_memory=True) as profiler:
        begin = time.perf_counter()
        with span(STEP):
            step()
            synchronize(device)
        seconds = time.perf_counter() - begin
    if on_trace is not None:
        on_trace(profiler)
    points = memory.curve(compat_profile.memory_events(profiler, device))
    return _read(list(profiler.profiler.kineto_results.events()), points, seconds, device, axis_of)


def _read(
    events: Sequence[Any], points: Sequence[tuple[int, int]], seconds: float, device: torch.device, axis_of: AxisOf
) -> Profile:
    activity = (on_device if device.type == "cuda" else on_host)(events, collective_calls())
    collectives, computation = [collective.interval for collective in activity.collectives], activity.computation
    axes = collectives_by_axis(activity.collectives, axis_of)
    waits, shortest = pipeline_waits(axes, computation)
    peak_time_ns, allocated = memory.peak(points)
    spans = {
        "data": spans_of(events, DATA),
        "hosts": spans_of(events, HOST_UPDATE),
        "work": spans_of(events, PASSES, UPDATE, OPTIMIZER),
    }
    (step,) = (interval(event) for event in events if event.name() == STEP and event.is_user_annotation() and _on_host(event))
    return Profile(
        profiled_step_seconds=seconds,
        communication_seconds=length(union(collectives)) / 1e9,
        exposed_communication_seconds=length(subtract(collectives, computation)) / 1e9,
        exposed_seconds_by_axis=exposed_by_axis(axes, computation),
        pipeline_waits=waits,
        shortest_transfer_seconds=shortest,
        compute_seconds=length(union(computation)) / 1e9,
        allocated_bytes=allocated,
        peak_moment=memory.moment(peak_time_ns, events),
        time=None if axes is None else partition_step(step, activity, axes, spans),
        activity=activity,
        memory_curve=points,
    )


def _on_host(event: Any) -> bool:
    return bool(event.device_type() == torch.autograd.DeviceType.CPU)
