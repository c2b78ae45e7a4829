"""Pipeline simulator: start and end of every action of a step, and the activations in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.cost.candidate_arrays import Floats, Mask
from strategist.cost.pipeline_actions import Action, Kind, Pipeline, actions

Numbers = NDArray[np.intp]

FORWARD, BACKWARD, WEIGHT = range(3)
"""Rows of arrays by action: forward pass; backward pass, full or of inputs; separate pass for weight gradients."""

MAX_GRAPHS = 16
"""Number of dependency graphs that are kept; one of 32,768 forward passes takes 3 MiB. The largest answers need 8."""

_ROW = {Kind.FORWARD: FORWARD, Kind.BACKWARD: BACKWARD, Kind.BACKWARD_INPUT: BACKWARD, Kind.BACKWARD_WEIGHT: WEIGHT}


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """Costs of one micro-batch on each stage: arrays of (candidates, stages), from the embedding to the head.

    A full backward pass takes ``backward_input + backward_weight``.

    hop_seconds: (candidates,) one transfer to a stage on another rank; a rank's transfers follow one another. They run beside
        computation if the device ``overlaps``, else they occupy the sender.
    kept_bytes: held from the forward pass until all gradients exist.
    tail_seconds: (candidates, ranks) after a rank's last action: reductions and update.
    """

    forward: Floats
    backward_input: Floats
    backward_weight: Floats
    kept_bytes: Floats
    hop_seconds: Floats
    tail_seconds: Floats
    overlaps: bool = True


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Dependencies of actions. An action's number is its index in an array of (3 rows, stages, micro-batches); one number more
    means none.

    turns: numbers of all actions, none at the end, in an order in which each follows its dependencies.
    edges: places in ``turns`` between which actions are independent.
    before, sources: places in ``turns`` of each action's predecessor on its rank, and of the action that produces its input.
    orders: (ranks, longest order) each rank's actions in order, padded with none.
    full: whether the backward pass of a stage and micro-batch is full.
    crossing: by number, whether the result goes to another rank.
    """

    pipeline: Pipeline
    turns: Numbers
    edges: tuple[int, ...]
    before: Numbers
    sources: Numbers
    orders: Numbers
    full: Mask
    crossing: Mask


@lru_cache(maxsize=MAX_GRAPHS)
def graph(pipeline: Pipeline) -> Graph:
    """The dependency graph of a pipeline; candidates with equal pipelines share it."""
    stages, every = pipeline.stages, pipeline.micro_batches
    none, rows = 3 * stages * every, {kind: row * stages for kind, row in _ROW.items()}
    lists = [[(rows[kind] + stage) * every + i for kind, stage, i in order] for order in actions(pipeline)]
    orders = np.full((pipeline.pp, max(map(len, lists))), none)
    for rank, numbers in enumerate(lists):
        orders[rank, : len(numbers)] = numbers
    needs = _needs(stages, every)
    waves = _waves(lists, needs.tolist(), none)
    before = np.full(none + 1, none)
    before[orders[:, 1:]] = orders[:, :-1]
    turns = np.append(np.argsort(waves, kind="stable")[np.count_nonzero(waves == 0) :], none)
    place = np.full(none + 1, len(turns) - 1)
    place[turns] = np.arange(len(turns))
    edges = (0, *(np.flatnonzero(np.diff(waves[turns])) + 1).tolist())
    apart = waves[WEIGHT * stages * every : none] > 0
    ranks = np.array([pipeline.rank_of(stage) for stage in range(stages)])
    leaves = np.zeros((3, stages, every), dtype=np.bool_)
    leaves[FORWARD, :-1] = leaves[BACKWARD, 1:] = (ranks[1:] != ranks[:-1])[:, None]
    return Graph(
        pipeline=pipeline,
        turns=turns,
        edges=edges,
        before=place[before[turns]],
        sources=place[needs[turns]],
        orders=orders,
        full=~apart.reshape(stages, every),
        crossing=leaves.reshape(none),
    )


def _needs(stages: int, micro_batches: int) -> Numbers:
    """The action that produces each action's input: of the previous stage, or of the next for a backward pass; none if there is
    none.
    """
    numbers = np.arange(3 * stages * micro_batches).reshape(3, stages, micro_batches)
    needs = np.full_like(numbers, numbers.size)
    needs[FORWARD, 1:] = numbers[FORWARD, :-1]
    needs[BACKWARD, :-1] = numbers[BACKWARD, 1:]
    return np.append(needs, numbers.size)


def _waves(orders: list[list[int]], needs: list[int], none: int) -> Numbers:
    """Length of the longest chain of dependencies up to each action, including it; 0 for actions that no rank runs."""
    waves, places, clocks = [0] * (none + 1), [0] * len(orders), [0] * len(orders)
    waves[none] = 1
    left = sum(map(len, orders))
    while left:
        before = left
        for rank, order in enumerate(orders):
            place, clock = places[rank], clocks[rank]
            for number in order[place:]:
                ready = waves[needs[number]]
                if not ready:
                    break
                clock = (ready if ready > clock else clock) + 1
                waves[number] = clock
                place += 1
            left -= place - places[rank]
            places[rank], clocks[rank] = place, clock
        if left == before:
            raise ValueError("actions wait for each other in a circle")
    waves[none] = 0
    return np.array(waves)


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Start and end of actions, in seconds from the start of the step: (numbers + none, candidates); 0 for actions that do not
    run.
    """

    graph: Graph
    costs: StageCosts
    start: Floats
    end: Floats

    @property
    def busy_seconds(self) -> Floats:
        """(candidates, ranks) seconds of a rank's actions."""
        return np.asarray((self.end - self.start)[self.graph.orders].sum(axis=1).T)

    @property
    def step_seconds(self) -> Floats:
        """(candidates,) until the last rank has finished its tail. Ranks begin a step together, because clipping by the norm, or
        reading the loss, synchronises them.
        """
        last = self.end[self.graph.orders].max(axis=1).T
        return np.asarray((last + self.costs.tail_seconds).max(axis=1))

    @property
    def bubble_seconds(self) -> Floats:
        """(candidates, ranks) seconds in which a rank runs neither an action nor its tail."""
        return np.asarray(self.step_seconds[:, None] - self.busy_seconds - self.costs.tail_seconds)

    def waiting(self) -> "Waiting":
        """Activations kept for the backward pass, by instant: forward passes add them, a micro-batch's last gradient frees them."""
        shared, kept = self.graph, self.costs.kept_bytes
        pipeline, none = shared.pipeline, shared.crossing.size
        row, stage = np.divmod(shared.orders // pipeline.micro_batches, pipeline.stages)
        stage = np.where(shared.orders < none, stage, 0)
        ends = np.concatenate([np.zeros(shared.full.size), shared.full.ravel(), np.ones(shared.full.size), [0.0]])
        gained = (row == FORWARD).astype(np.float64)
        lost, left = _one_later(ends[shared.orders]), _one_later(stage)
        held = np.cumsum(gained * kept[:, stage] - lost * kept[:, left], axis=2)
        worst = held.argmax(axis=2)
        actions_at_worst = shared.orders[np.arange(pipeline.pp), worst]
        return Waiting(
            micro_batches=np.cumsum(gained - lost, axis=1).max(axis=1) / pipeline.virtual_stages,
            peak_bytes=held.max(axis=2),
            peak_seconds=self.end[actions_at_worst, np.arange(len(kept))[:, None]],
        )

    def actions(self, candidate: int = 0) -> Iterator[tuple[int, Action, float, float]]:
        """Rank, action, begin and end of each, rank after rank in their order."""
        pipeline = self.graph.pipeline
        for rank, (numbers, order) in enumerate(zip(self.graph.orders, actions(pipeline), strict=True)):
            for number, action in zip(numbers, order, strict=False):
                yield rank, action, float(self.start[number, candidate]), float(self.end[number, candidate])


def _one_later(by_rank: NDArray[Any]) -> NDArray[Any]:
    """Values after each action, shifted by one along the rank's order: the values at the start of each action."""
    return np.concatenate([np.zeros_like(by_rank[:, :1]), by_rank[:, :-1]], axis=1)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Micro-batches in flight on each rank at most (ranks,), one of its stages counting as its share of them; and by candidate and
    rank the most bytes that they keep, and when."""

    micro_batches: Floats
    peak_bytes: Floats
    peak_seconds: Floats


def simulate(pipeline: Pipeline, costs: StageCosts) -> Timeline:
    """Runs all candidates of one pipeline at once, wave by wave: an action begins when its rank is free and its input is there,
    which leaves once the sender's port is free.
    """
    shared = graph(pipeline)
    seconds = _durations(shared, costs)
    hop = shared.crossing[:, None] * costs.hop_seconds
    if not costs.overlaps:
        seconds[:-1] += hop
        hop = np.zeros_like(hop)
    lasts, away = seconds[shared.turns], np.append(hop, hop[:1], axis=0)[shared.turns]
    ends, arrived, sent = np.zeros_like(lasts), np.zeros_like(lasts), np.zeros_like(lasts)
    sends = np.append(shared.crossing, False)[shared.turns, None]
    for begin, stop in pairwise(shared.edges):
        before = shared.before[begin:stop]
        done = np.maximum(ends.take(before, axis=0), arrived.take(shared.sources[begin:stop], axis=0), out=ends[begin:stop])
        done += lasts[begin:stop]
        port = sent.take(before, axis=0)
        np.add(np.maximum(done, port * sends[begin:stop]), away[begin:stop], out=arrived[begin:stop])
        np.maximum(port, arrived[begin:stop] * sends[begin:stop], out=sent[begin:stop])
    end = np.zeros_like(seconds)
    end[shared.turns] = ends
    return Timeline(graph=shared, costs=costs, start=end - seconds, end=end)


def _durations(shared: Graph, costs: StageCosts) -> Floats:
    """(numbers + none, candidates); nothing for actions that no rank runs."""
    full, candidates = shared.full[..., None], len(costs.forward)
    each = np.empty((3, *shared.full.shape, candidates))
    forward, inputs, weights = (array.T[:, None] for array in (costs.forward, costs.backward_input, costs.backward_weight))
    each[FORWARD], each[BACKWARD], each[WEIGHT] = forward, inputs + full * weights, ~full * weights
    return np.concatenate([each.reshape(-1, candidates), np.zeros((1, candidates))])
