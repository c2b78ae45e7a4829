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
    for piece in collectives:
        if piece.group is None:
            return None
        axes[axis_of(piece.group)].append(piece)
    return dict(axes)


def partition_step(step: Interval, activity: Activity, axes: Mapping[str, Sequence[Collective]], spans: Spans) -> dict[str, float]:
    """Seconds of the step by part; they add up to it. ``spans`` are the host's: reading ``data``, ``work`` (passes and update),
    and ``hosts`` (waiting for a host update).
    """
    left = RemainingTime(step)
    shares: dict[str, float] = defaultdict(float)

    def take(part: str, wanted: Iterable[Interval]) -> None:
        shares[part] += length(left.take(wanted)) / 1e9

    for kind in KINDS:
        take(kind, intersect(activity.computation, activity.kinds.get(kind, ())))
    take("memory_bound", activity.computation)
    for axis in sorted(axes, key=lambda axis: axis in (WORLD, PIPELINE)):
        take(COMMUNICATION.get(axis, "world_communication"), [piece.interval for piece in axes[axis]])
    take("offload", [*activity.copies, *spans["hosts"]])
    take("data", spans["data"])
    take("launch", spans["work"])
    take("other", [step])
    return dict(shares)


def exposed_by_axis(axes: Mapping[str, Sequence[Collective]] | None, computation: Sequence[Interval]) -> dict[str, float] | None:
    """Seconds by axis in which only collectives of this axis ran; None if axes are unknown."""
    if axes is None:
        return None
    return {axis: length(_exposed(axis, axes, computation)) / 1e9 for axis in axes}


def _exposed(axis: str, axes: Mapping[str, Sequence[Collective]], computation: Sequence[Interval]) -> list[Interval]:
    others = [piece.interval for other, pieces in axes.items() if other != axis for piece in pieces]
    return subtract([piece.interval for piece in axes[axis]], [*computation, *others])


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
    taken = [*computation, *(piece.interval for axis in axes if axis not in (PIPELINE, WORLD) for piece in axes[axis])]
    pieces = sorted(piece.interval for piece in (*axes[PIPELINE], *axes.get(WORLD, ())))
    shortest = min(end - begin for begin, end in (piece.interval for piece in axes[PIPELINE])) / 1e9
    return tuple(seconds / 1e9 for seconds in _exposed_lengths(pieces, union(taken))), shortest


def _exposed_lengths(pieces: Sequence[Interval], taken: Sequence[Interval]) -> Iterable[int]:
    """The length of each piece (sorted by begin) that is neither in ``taken`` nor in an earlier piece."""
    done, first = 0, 0
    for begin, end in pieces:
        begin = max(begin, done)
        while first < len(taken) and taken[first][1] <= begin:
            first += 1
        last = first
        while last < len(taken) and taken[last][0] < end:
            last += 1
        yield length(subtract([(begin, end)], taken[first:last])) if begin < end else 0
        done = max(done, end)
