"""Bytes of each collective, counted where torch calls it, and its time, by mesh axis and kind of collective.

The size of a call is the larger of input and output on one rank, as in nccl-tests: the whole gathered tensor of an all-gather,
the whole input of a reduce-scatter.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.compiler import set_stance
from torch.distributed.tensor import DTensor

from strategist.contract.rank_observation import Traffic
from strategist_runtime.compat import profile as compat_profile
from strategist_runtime.compat.device import synchronize
from strategist_runtime.compat.dispatch import DispatchMode, HigherOrderOperator, leaves, zeros_of
from strategist_runtime.measure.collectives import POINT_TO_POINT, Collective
from strategist_runtime.measure.intervals import Interval, length, subtract, union
from strategist_runtime.measure.parts import AxisOf

COLLECTIVE_NAMES = {
    "allreduce": "all_reduce", "reducescatter": "reduce_scatter", "allgather": "all_gather", "alltoall": "all_to_all",
    "broadcast": "broadcast", "sendrecv": "send_recv", "gather": "gather", "scatter": "scatter", "reduce": "reduce",
    "send": "send", "recv": "recv", "barrier": "barrier",
}  # fmt: skip
"""Collectives by a part of their name, lower case without underscores; longer parts first."""


def plain_name(name: str) -> str:
    """Plain name of a collective: ``all_gather`` for ``_allgather_base_`` and ``ncclDevKernel_AllGather_RING_LL``."""
    letters = "".join(letter for letter in name.lower() if letter.isalpha())
    return next((plain for part, plain in COLLECTIVE_NAMES.items() if part in letters), name)


@dataclass(frozen=True, kw_only=True)
class CollectiveCall:
    """One call of a collective: torch's description of its group, its plain name, and the bytes of its message."""

    group: str
    name: str
    message_bytes: int


class CollectiveCounter(DispatchMode):
    """Context that counts every collective, including those of the backward pass. It slows a step down, so it is used in an extra
    step.

    FlexAttention, which does not communicate, returns zeros in it: uncompiled it would materialise all scores.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[CollectiveCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs and counts the operator; an operator on DTensors is dispatched again on their shards."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if isinstance(func, HigherOrderOperator):
            return zeros_of(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        group = compat_profile.group_of_call(func, args)
        if group is not None:
            size = max(map(_total_bytes, (*args, *(result if isinstance(result, tuple) else (result,)))))
            pair = compat_profile.PAIRED_COLLECTIVES.get(func)
            self.calls += [CollectiveCall(group=group, name=pair or plain_name(func.__name__), message_bytes=size)] * (
                2 if pair else 1
            )
        return result


def _total_bytes(argument: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(argument) if isinstance(leaf, Tensor))


def with_torch_names(collectives: Sequence[Collective], calls: Sequence[CollectiveCall]) -> list[Collective]:
    """Collectives with the names of torch's calls, for groups with as many collectives as calls.

    Gloo runs, and records, a reduce-scatter as an all-reduce. The calls of a group run in order.
    """
    call_names: dict[str, list[str]] = defaultdict(list)
    for call in calls:
        if call.name not in ("send", "recv", "barrier"):
            call_names[call.group].append(call.name)
    event_counts = Counter(collective.group for collective in collectives if collective.name not in POINT_TO_POINT)
    next_call: Counter[str] = Counter()
    found = []
    for collective in sorted(collectives, key=lambda collective: collective.interval):
        name, group = plain_name(collective.name), collective.group
        if collective.name not in POINT_TO_POINT and group is not None and event_counts[group] == len(call_names[group]):
            name = call_names[group][next_call[group]]
            next_call[group] += 1
        found.append(replace(collective, name=name))
    return found


@dataclass
class _Row:
    calls: int = 0
    message_bytes: int = 0
    intervals: list[Interval] = field(default_factory=list)


def traffic(
    axes: Mapping[str, Iterable[Collective]], calls: Iterable[CollectiveCall], computation: Sequence[Interval], axis_of: AxisOf
) -> tuple[Traffic, ...]:
    """Calls, bytes and time of each kind of collective along each axis, on this rank."""
    rows: dict[tuple[str, str], _Row] = defaultdict(_Row)
    for call in calls:
        if call.name != "barrier":
            row = rows[axis_of(call.group), call.name]
            row.calls += 1
            row.message_bytes += call.message_bytes
    for axis, members in axes.items():
        for collective in members:
            rows[axis, plain_name(collective.name)].intervals.append(collective.interval)
    busy = union(computation)
    return tuple(
        Traffic(
            axis=axis,
            collective=name,
            calls=row.calls,
            message_bytes=row.message_bytes,
            seconds=length(union(row.intervals)) / 1e9,
            exposed_seconds=length(subtract(row.intervals, busy)) / 1e9,
        )
        for (axis, name), row in sorted(rows.items())
    )


def count_collectives(step: Callable[[], object], device: torch.device) -> list[CollectiveCall]:
    """The collectives of a step that runs for this purpose only. Dynamo does not compile within such a mode, so compiled layers
    run eagerly, with the same collectives.
    """
    with set_stance("force_eager"), CollectiveCounter() as counter:
        step()
        synchronize(device)
    return counter.calls
