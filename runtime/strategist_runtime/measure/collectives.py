"""The activity of a profiled step: when each collective ran and in which process group, and when computation and copies ran.

On a GPU collectives are NCCL's kernels; the profiler links each to the call that launched it, whose metadata has the group. On
CPU, and where ranks share a GPU, they are gloo's events, which do not have the group. But each of gloo's threads serves one
group, and torch's flight recorder has the group of each call.
"""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strategist_runtime.compat.profile import CALL, GROUP, call_metadata
from strategist_runtime.compat.shadow import STAND_IN
from strategist_runtime.measure.intervals import Interval, subtract
from strategist_runtime.measure.kernel_kinds import host_kinds, interval, kernel_kinds, launched_within, on_cpu, spans_of
from strategist_runtime.measure.spans import DATA

COMPUTE_PREFIXES = ("aten::", "fsdp::", "## Call CompiledFxGraph")
"""Prefixes of computation. The last is a compiled layer, whose fused kernels have no events."""
COLLECTIVE_CALLS = ("c10d::", "_c10d_functional", "c10d_functional", "_dtensor::")
GLOO = "gloo:"
POINT_TO_POINT = ("gloo:send", "gloo:recv")
"""Events of the calling thread that are missing in the flight recorder; only pipelines send and receive."""

SEND_RECEIVE, PIPELINE = "SendRecv", "mesh_pp"
COPIES = ("Memcpy HtoD", "Memcpy DtoH")
Call = tuple[int, str, str]
"""Call of a collective: its time in nanoseconds since 1970, its name in the profile, and its group."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One communication operation; ``group`` is torch's description of the process group, None if unknown."""

    interval: Interval
    name: str
    group: str | None


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Intervals of collectives, computation, and copies between host and device. ``kinds`` are those of the computation."""

    collectives: list[Collective]
    computation: list[Interval]
    copies: list[Interval]
    kinds: dict[str, list[Interval]]


def on_device(events: Sequence[Any], calls_of_gloo: Iterable[Call] = ()) -> Activity:
    """Activity on a GPU: NCCL's kernels (gloo's events if there are none), copies between host and device, and all other kernels.

    The device's images of the host's spans are ignored, since they are no work. Replacements of collectives count as collectives
    of the group ``STAND_IN``.
    """
    calls = {event.correlation_id(): meta for event in events if GROUP in (meta := call_metadata(event))}
    nccl_events: list[tuple[Any, Mapping[str, str]]] = []
    kernels, copies = [], []
    for event in events:
        if on_cpu(event) or event.is_user_annotation() or event.duration_ns() <= 0:
            continue
        if "nccl" in event.name().lower():
            nccl_events.append((event, calls.get(event.linked_correlation_id(), {})))
        elif event.name().startswith(COPIES):
            copies.append(interval(event))
        else:
            kernels.append(event)
    communication = _nccl_collectives(nccl_events) or _gloo_collectives(events, calls_of_gloo)
    replacements = launched_within(spans_of(events, STAND_IN), events, kernels)
    communication += [Collective(interval=interval(kernel), name=STAND_IN, group=STAND_IN) for kernel in replacements]
    replacement_ids = set(map(id, replacements))
    kernels = [kernel for kernel in kernels if id(kernel) not in replacement_ids]
    return Activity(
        collectives=communication,
        computation=[interval(kernel) for kernel in kernels],
        copies=copies,
        kinds=kernel_kinds(events, kernels),
    )


def _nccl_collectives(nccl_events: Sequence[tuple[Any, Mapping[str, str]]]) -> list[Collective]:
    """NCCL's kernels with their name and group.

    The call of some kernels is unknown, for example of a pipeline's batched messages. Such a kernel gets the most frequent group
    of its stream, since each group has its own stream; if no call on the stream is known, a send or receive belongs to the
    pipeline.
    """
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    for event, call in nccl_events:
        if GROUP in call:
            votes[event.device_resource_id()][call[GROUP]] += 1
    found = []
    for event, call in nccl_events:
        stream_groups = votes[event.device_resource_id()].most_common(1)
        default_group = stream_groups[0][0] if stream_groups else PIPELINE if SEND_RECEIVE in event.name() else None
        found.append(
            Collective(interval=interval(event), name=call.get(CALL) or event.name(), group=call.get(GROUP, default_group))
        )
    return found


def on_host(events: Sequence[Any], calls: Iterable[Call]) -> Activity:
    """Activity on CPU: gloo's events, and the operators of all other threads, except waits within calls of collectives, and
    reading data.
    """
    replacements = spans_of(events, STAND_IN)
    operators: dict[int, list[Interval]] = defaultdict(list)
    waits: dict[int, list[Interval]] = defaultdict(list)
    gloo_threads = {event.start_thread_id() for event in events if _runs_on_gloo_thread(event)}
    for event in events:
        if event.start_thread_id() in gloo_threads:
            continue
        if event.name().startswith(COMPUTE_PREFIXES):
            operators[event.start_thread_id()].append(interval(event))
        elif event.name().startswith(COLLECTIVE_CALLS):
            waits[event.start_thread_id()].append(interval(event))
    computation = [part for thread, intervals in operators.items() for part in subtract(intervals, waits[thread])]
    return Activity(
        collectives=_gloo_collectives(events, calls)
        + [Collective(interval=span, name=STAND_IN, group=STAND_IN) for span in replacements],
        computation=subtract(computation, spans_of(events, DATA)),
        copies=[],
        kinds=host_kinds(events),
    )


def _gloo_collectives(events: Sequence[Any], calls: Iterable[Call]) -> list[Collective]:
    groups = _group_by_thread(filter(_runs_on_gloo_thread, events), calls)
    return [
        Collective(
            interval=interval(event),
            name=event.name(),
            group=PIPELINE if event.name() in POINT_TO_POINT else groups.get(event.start_thread_id()),
        )
        for event in events
        if event.name().startswith(GLOO)
    ]


def _runs_on_gloo_thread(event: Any) -> bool:
    return bool(event.name().startswith(GLOO)) and event.name() not in POINT_TO_POINT


def _group_by_thread(events: Iterable[Any], calls: Iterable[Call]) -> dict[int, str]:
    """The group of each of gloo's threads: for most of its events, the group of the latest call of the same name before the
    event.
    """
    calls_by_name: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for time_ns, name, group in sorted(calls):
        calls_by_name[name].append((time_ns, group))
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    for event in events:
        earlier = bisect(calls_by_name[event.name()], event.start_ns(), key=lambda call: call[0])
        if earlier:
            votes[event.start_thread_id()][calls_by_name[event.name()][earlier - 1][1]] += 1
    return {thread: groups.most_common(1)[0][0] for thread, groups in votes.items()}
