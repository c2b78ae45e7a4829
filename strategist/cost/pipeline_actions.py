"""Pipeline actions: the sequence of actions of each rank, as the schedules of torch.distributed.pipelining run them."""

from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from strategist.contract.pipeline_stages import rank_of_stage


class Kind(StrEnum):
    """Kinds of actions. A full backward pass computes gradients of inputs and of weights together."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"


F, B, I, W = Kind  # noqa: E741 (torch's letters)


class Action(NamedTuple):
    """One kind of work for one micro-batch on one stage of the model; stages count from the embedding."""

    kind: Kind
    stage: int
    micro_batch: int


class Pipeline(NamedTuple):
    """Settings that determine the order of actions; ``schedule`` is a value of the knob ``pp_schedule``."""

    schedule: str
    pp: int
    virtual_stages: int
    micro_batches: int

    @property
    def stages(self) -> int:
        return self.pp * self.virtual_stages

    def rank_of(self, stage: int) -> int:
        """The rank that holds a stage."""
        return rank_of_stage(self.schedule, self.pp, self.stages, stage)


Actions = list[Action]


def actions(pipeline: Pipeline) -> tuple[Actions, ...]:
    """The order of actions on each rank, for legal settings (``contract.knobs``).

    Orders are those of torch 2.13's schedules. An overlapped forward and backward runs one after the other, because no function for
    both is registered; without overlap ``Schedule1F1B`` follows its step function, which differs from its printed table.
    """
    rank_actions = _SCHEDULES[pipeline.schedule]
    return tuple(rank_actions(pipeline, rank) for rank in range(pipeline.pp))


def _gpipe(p: Pipeline, rank: int) -> Actions:
    micro_batches = range(p.micro_batches)
    return [*(Action(F, rank, i) for i in micro_batches), *(Action(B, rank, i) for i in micro_batches)]


def _1f1b(p: Pipeline, rank: int) -> Actions:
    forwards = [Action(F, rank, i) for i in range(p.micro_batches)]
    backwards = [Action(B, rank, i) for i in range(p.micro_batches)]
    warm_up = min(p.micro_batches, p.pp - rank) - 1
    return [*forwards[:warm_up], *_alternated(forwards[warm_up:], backwards), *backwards[len(forwards) - warm_up :]]


def _looped_bfs(p: Pipeline, rank: int) -> Actions:
    """All micro-batches of a stage before the next stage; backward from the last micro-batch of the last stage."""
    forwards = [Action(F, stage, i) for stage in range(rank, p.stages, p.pp) for i in range(p.micro_batches)]
    return [*forwards, *(Action(B, stage, i) for _, stage, i in reversed(forwards))]


def _interleaved_1f1b(p: Pipeline, rank: int) -> Actions:
    warm_up = _warm_up(p, 2 * (p.pp - 1 - rank))
    forwards, backwards = _rounds(p, rank, F), _rounds(p, rank, B)
    return [*forwards[:warm_up], *_alternated(forwards[warm_up:], backwards), *backwards[len(forwards) - warm_up :]]


def _interleaved_zero_bubble(p: Pipeline, rank: int) -> Actions:
    """Interleaved 1F1B with half the warm-up; gradients of weights follow ``rank`` gradients of inputs later."""
    warm_up = _warm_up(p, p.pp - 1 - rank)
    forwards, backwards, weights = (_rounds(p, rank, kind) for kind in (F, I, W))
    order = forwards[:warm_up]
    for i, backward in enumerate(backwards):
        order += forwards[warm_up + i : warm_up + i + 1]
        order.append(backward)
        if i >= rank:
            order.append(weights[i - rank])
    return order + weights[len(weights) - rank :] if rank else order


def _warm_up(p: Pipeline, extra: int) -> int:
    """Number of forward passes before the first backward pass: ``extra`` more than on the last rank."""
    return min((p.virtual_stages - 1) * _per_round(p) + extra, p.micro_batches * p.virtual_stages)


def _per_round(p: Pipeline) -> int:
    return p.micro_batches // max(1, p.micro_batches // p.pp)


def _rounds(p: Pipeline, rank: int, kind: Kind) -> Actions:
    """All actions of a kind: a round of micro-batches on the rank's first stage, then on its second; backward from its last."""
    size, order = _per_round(p), []
    local_stages = range(p.virtual_stages) if kind is F else range(p.virtual_stages - 1, -1, -1)
    for begin in range(0, p.micro_batches, size):
        for local_stage in local_stages:
            order += [Action(kind, local_stage * p.pp + rank, i) for i in range(begin, begin + size)]
    return order


def _alternated(forwards: Actions, backwards: Actions) -> Iterator[Action]:
    """Alternates forward and backward passes while there are forward passes."""
    for pair in zip(forwards, backwards, strict=False):
        yield from pair


class _OrderBuilder:
    """Builds an order; micro-batches count up by stage and kind, and a full backward pass counts as both its halves."""

    def __init__(self) -> None:
        self.order: Actions = []
        self._next: dict[tuple[int, Kind], int] = {}
        self._weights: deque[tuple[int, int]] = deque()

    def add(self, kind: Kind, stage: int) -> None:
        key = stage, I if kind is B else kind
        micro_batch = self._next.get(key, 0)
        self._next[key] = micro_batch + 1
        self.order.append(Action(kind, stage, micro_batch))
        if kind is I:
            self._weights.append((stage, micro_batch))

    def add_both(self, forward: int, backward: int) -> None:
        self.add(F, forward)
        self.add(B, backward)

    def add_weights(self, times: int = 1) -> None:
        """Appends the oldest pending weight gradients, at most ``times``."""
        for _ in range(min(times, len(self._weights))):
            stage, micro_batch = self._weights.popleft()
            self.order.append(Action(W, stage, micro_batch))

    def count(self, kind: Kind, stage: int) -> int:
        return self._next.get((stage, kind), 0)


def _zbv_zero_bubble(p: Pipeline, rank: int) -> Actions:
    """ZB-V (arXiv 2401.10241, section 6), built for at least 2 pp - 1 micro-batches and reduced to the given number."""
    micro_batches = max(2 * p.pp - 1, p.micro_batches)
    builder, down, up = _OrderBuilder(), rank, p.stages - 1 - rank
    for _ in range(2 * (p.pp - rank) - 1):
        builder.add(F, down)
    for _ in range(rank):
        builder.add(F, up)
        builder.add(F, down)
    for _ in range(p.pp - rank):
        for kind in (F, I, W):
            builder.add(kind, up)
    while builder.count(F, up) < builder.count(F, down) or builder.count(F, down) < micro_batches:
        if builder.count(F, down) < micro_batches:
            builder.add(F, down)
        builder.add(I, down)
        builder.add(W, down)
        for kind in (F, I, W):
            builder.add(kind, up)
    for _ in range(rank):
        builder.add(I, down)
        builder.add(I, up)
    for _ in range(p.pp - rank):
        builder.add(I, down)
        builder.add(W, down)
    for stage in (up, down):
        for _ in range(builder.count(I, stage) - builder.count(W, stage)):
            builder.add(W, stage)
    return [action for action in builder.order if action.micro_batch < p.micro_batches]


def _dual_pipe_v(p: Pipeline, rank: int) -> Actions:
    """DualPipe cut in half (arXiv 2412.19437, section 3.2.1), in the eight steps of torch's schedule."""
    builder, down, up = _OrderBuilder(), rank, p.stages - 1 - rank
    before, after = rank + 1, p.pp - 1 - rank
    for _ in range(2 * after):
        builder.add(F, down)
    for _ in range(before):
        builder.add(F, down)
        builder.add(F, up)
    for _ in range(after):
        builder.add(I, up)
        builder.add_weights()
        builder.add(F, up)
    for _ in range(p.micro_batches - 2 * p.pp + before):
        builder.add_both(down, up)
        builder.add_both(up, down)
    for _ in range(after):
        builder.add(B, up)
        builder.add_both(up, down)
    for half in range(2 * before):  # from the middle on, gradients of weights wait
        builder.add(_last_backward_kind(half, rank), down if half % 2 else up)
    for _ in range(after):
        builder.add_weights()
        builder.add(I, down)
    builder.add_weights(before)
    return builder.order


def _last_backward_kind(half: int, rank: int) -> Kind:
    """Kind of backward pass in the last part of DualPipeV: full until the middle, which lies one half later on even ranks."""
    middle = 2 * ((rank + 1) // 2) + (rank + 1) % 2
    return I if half >= middle else B


_SCHEDULES: dict[str, Callable[[Pipeline, int], Actions]] = {
    "gpipe": _gpipe,
    "1f1b": _1f1b,
    "looped_bfs": _looped_bfs,
    "interleaved_1f1b": _interleaved_1f1b,
    "interleaved_zero_bubble": _interleaved_zero_bubble,
    "zbv_zero_bubble": _zbv_zero_bubble,
    "dual_pipe_v": _dual_pipe_v,
}
