"""Partition of a profiled step's time into parts that add up to it: each instant belongs to exactly one part.

Part names are those of ``contract.estimate.TimeParts`` where the meaning is the same. Precedence: computation, exposed
collectives, copies between host and device, waiting for data. While nothing ran, the host was launching work (``launch``) or
doing something else (``other``).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from strategist_runtime.measure.collectives import Activity, Collective
from strategist_runtime.measure.intervals import Interval, RemainingTime, intersect, length, subtract, union
from strategist_runtime.measure.kernel_kinds import KINDS

PIPELINE, WORLD = "pp", "world"
AxisOf = Callable[[str], str]
COMMUNICATION = {
    "tp": "tp_communication", "tp_expert": "tp_communication", "cp": "cp_communication", "ep": "ep_communication",
    "dp_shard": "dp_communication", "dp_replicate": "dp_communication", WORLD: "world_communication", PIPELINE: "pp_communication",
}  # fmt: skip
"""The part of the collectives of each axis. The pipeline's part includes its bubble until the records of all ranks are combined."""

Spans = Mapping[str, Sequence[Interval]]


def collectives_by_axis(collectives: Iterable[Collective], axis_of: AxisOf) -> dict[str, list[Collective]] | None:
    """The collectives by mesh axis; None if the group of any is unknown."""
    axes: dict[str, list[Collective]] = defaultdict(list)
    for collective in collectives:
        if collective.group is None:
            return None
        axes[axis_of(collective.group)].append(collective)
    return dict(axes)


def partition_step(step: Interval, activity: Activity, axes: Mapping[str, Sequence[Collective]], spans: Spans) -> dict[str, float]:
    """Seconds of the step by part; they add up to it. ``spans`` are the host's: reading ``data``, ``work`` (passes and update),
    and ``hosts`` (waiting for a host update).
    """
    remaining = RemainingTime(step)
    seconds: dict[str, float] = defaultdict(float)

    def take(part: str, intervals: Iterable[Interval]) -> None:
        seconds[part] += length(remaining.take(intervals)) / 1e9

    for kind in KINDS:
        take(kind, intersect(activity.computation, activity.kinds.get(kind, ())))
    take("memory_bound", activity.computation)
    for axis in sorted(axes, key=lambda axis: axis in (WORLD, PIPELINE)):
        take(COMMUNICATION.get(axis, "world_communication"), [collective.interval for collective in axes[axis]])
    take("offload", [*activity.copies, *spans["hosts"]])
    take("data", spans["data"])
    take("launch", spans["work"])
    take("other", [step])
    return dict(seconds)


def exposed_by_axis(axes: Mapping[str, Sequence[Collective]] | None, computation: Sequence[Interval]) -> dict[str, float] | None:
    """Seconds by axis in which only collectives of this axis ran; None if axes are unknown."""
    if axes is None:
        return None
    return {axis: length(_exposed_intervals(axis, axes, computation)) / 1e9 for axis in axes}


def _exposed_intervals(axis: str, axes: Mapping[str, Sequence[Collective]], computation: Sequence[Interval]) -> list[Interval]:
    others = [collective.interval for other, members in axes.items() if other != axis for collective in members]
    return subtract([collective.interval for collective in axes[axis]], [*computation, *others])


def pipeline_waits(
    axes: Mapping[str, Sequence[Collective]] | None, computation: Sequence[Interval]
) -> tuple[tuple[float, ...] | None, float | None]:
    """Seconds that a pipeline rank spent in each send, receive and reduction over all ranks while nothing else ran; and the
    duration of its shortest send or receive. Empty without a pipeline; None if the axes are unknown.

    Each wait ends with the transfer itself. The last rank to arrive does not wait, so the shortest duration over all ranks is
    that of a transfer.
    """
    if axes is None or PIPELINE not in axes:
        return (None if axes is None else ()), None
    busy = [*computation, *(collective.interval for axis in axes if axis not in (PIPELINE, WORLD) for collective in axes[axis])]
    waits = sorted(collective.interval for collective in (*axes[PIPELINE], *axes.get(WORLD, ())))
    shortest = min(end - begin for begin, end in (collective.interval for collective in axes[PIPELINE])) / 1e9
    return tuple(seconds / 1e9 for seconds in _exposed_lengths(waits, union(busy))), shortest


def _exposed_lengths(intervals: Sequence[Interval], busy: Sequence[Interval]) -> Iterable[int]:
    """The length of each piece (sorted by begin) that is neither in ``busy`` nor in an earlier piece."""
    covered_until, first = 0, 0
    for begin, end in intervals:
        begin = max(begin, covered_until)
        while first < len(busy) and busy[first][1] <= begin:
            first += 1
        last = first
        while last < len(busy) and busy[last][0] < end:
            last += 1
        yield length(subtract([(begin, end)], busy[first:last])) if begin < end else 0
        covered_until = max(covered_until, end)
