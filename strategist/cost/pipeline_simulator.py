"""Pipeline simulator: start and end of every action of a step, and the activations in memory."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.cost.candidate_arrays import Floats, Mask
from strategist.cost.pipeline_actions import Action, Kind, Pipeline, actions
from strategist.frozen import frozen

Numbers = NDArray[np.intp]

FORWARD, BACKWARD, WEIGHT = range(3)
"""Rows of arrays by action: forward pass; backward pass, full or of inputs; separate pass for weight gradients."""

MAX_GRAPHS = 16
"""Number of dependency graphs in the cache; one of 32,768 forward passes takes 3 MiB. The largest answers need 8."""

_ROW = {Kind.FORWARD: FORWARD, Kind.BACKWARD: BACKWARD, Kind.BACKWARD_INPUT: BACKWARD, Kind.BACKWARD_WEIGHT: WEIGHT}


@frozen
class StageCosts:
    """Costs of one micro-batch on each stage: arrays of (candidates, stages), from the embedding to the head.

    A full backward pass takes ``backward_input + backward_weight``.

    hop_seconds: (candidates,) one transfer to a stage on another rank; transfers of a rank run one after the other. They overlap
        with computation if the device ``overlaps``, else they occupy the sender.
    saved_bytes: activations held from the forward pass until all gradients exist.
    tail_seconds: (candidates, ranks) after a rank's last action: reductions and update.
    """

    forward: Floats
    backward_input: Floats
    backward_weight: Floats
    saved_bytes: Floats
    hop_seconds: Floats
    tail_seconds: Floats
    overlaps: bool = True


@frozen
class Graph:
    """Dependencies of actions. An action's number is its index in an array of (3 rows, stages, micro-batches); one number more
    means none.

    topological_order: numbers of all actions, each after its dependencies; none at the end.
    level_edges: positions in ``topological_order`` between which actions are independent of each other.
    predecessors, producers: positions in ``topological_order`` of each action's predecessor on its rank, and of the action that
        produces its input.
    orders: (ranks, longest order) each rank's actions in order, padded with none.
    full: whether the backward pass of a stage and micro-batch is full.
    crossing: by number, whether the result goes to another rank.
    """

    pipeline: Pipeline
    topological_order: Numbers
    level_edges: tuple[int, ...]
    predecessors: Numbers
    producers: Numbers
    orders: Numbers
    full: Mask
    crossing: Mask


@lru_cache(maxsize=MAX_GRAPHS)
def graph(pipeline: Pipeline) -> Graph:
    """The dependency graph of a pipeline; candidates with equal pipelines share it."""
    stages, micro_batches = pipeline.stages, pipeline.micro_batches
    no_action, rows = 3 * stages * micro_batches, {kind: row * stages for kind, row in _ROW.items()}
    rank_orders = [[(rows[kind] + stage) * micro_batches + i for kind, stage, i in order] for order in actions(pipeline)]
    orders = np.full((pipeline.pp, max(map(len, rank_orders))), no_action)
    for rank, numbers in enumerate(rank_orders):
        orders[rank, : len(numbers)] = numbers
    producers = _producers(stages, micro_batches)
    depths = _depths(rank_orders, producers.tolist(), no_action)
    predecessors = np.full(no_action + 1, no_action)
    predecessors[orders[:, 1:]] = orders[:, :-1]
    topological_order = np.append(np.argsort(depths, kind="stable")[np.count_nonzero(depths == 0) :], no_action)
    positions = np.full(no_action + 1, len(topological_order) - 1)
    positions[topological_order] = np.arange(len(topological_order))
    level_edges = (0, *(np.flatnonzero(np.diff(depths[topological_order])) + 1).tolist())
    separate_weights = depths[WEIGHT * stages * micro_batches : no_action] > 0
    ranks = np.array([pipeline.rank_of(stage) for stage in range(stages)])
    crossing = np.zeros((3, stages, micro_batches), dtype=np.bool_)
    crossing[FORWARD, :-1] = crossing[BACKWARD, 1:] = (ranks[1:] != ranks[:-1])[:, None]
    return Graph(
        pipeline=pipeline,
        topological_order=topological_order,
        level_edges=level_edges,
        predecessors=positions[predecessors[topological_order]],
        producers=positions[producers[topological_order]],
        orders=orders,
        full=~separate_weights.reshape(stages, micro_batches),
        crossing=crossing.reshape(no_action),
    )


def _producers(stages: int, micro_batches: int) -> Numbers:
    """The action that produces each action's input: of the previous stage, or of the next for a backward pass; none if there is
    none.
    """
    numbers = np.arange(3 * stages * micro_batches).reshape(3, stages, micro_batches)
    producers = np.full_like(numbers, numbers.size)
    producers[FORWARD, 1:] = numbers[FORWARD, :-1]
    producers[BACKWARD, :-1] = numbers[BACKWARD, 1:]
    return np.append(producers, numbers.size)


def _depths(orders: list[list[int]], producers: list[int], no_action: int) -> Numbers:
    """Length of the longest chain of dependencies up to each action, including it; 0 for actions that no rank runs."""
    depths, next_index, rank_depths = [0] * (no_action + 1), [0] * len(orders), [0] * len(orders)
    depths[no_action] = 1
    remaining = sum(map(len, orders))
    while remaining:
        remaining_before = remaining
        for rank, order in enumerate(orders):
            index, depth = next_index[rank], rank_depths[rank]
            for number in order[index:]:
                input_depth = depths[producers[number]]
                if not input_depth:
                    break
                depth = (input_depth if input_depth > depth else depth) + 1
                depths[number] = depth
                index += 1
            remaining -= index - next_index[rank]
            next_index[rank], rank_depths[rank] = index, depth
        if remaining == remaining_before:
            raise ValueError("actions wait for each other in a circle")
    depths[no_action] = 0
    return np.array(depths)


@frozen
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

    def in_flight(self) -> "InFlight":
        """Activations kept for the backward pass, by instant: forward passes add them, a micro-batch's last gradient frees them."""
        dependencies, saved_bytes = self.graph, self.costs.saved_bytes
        pipeline, no_action = dependencies.pipeline, dependencies.crossing.size
        row, stage = np.divmod(dependencies.orders // pipeline.micro_batches, pipeline.stages)
        stage = np.where(dependencies.orders < no_action, stage, 0)
        frees = np.concatenate(
            [np.zeros(dependencies.full.size), dependencies.full.ravel(), np.ones(dependencies.full.size), [0.0]]
        )
        allocated = (row == FORWARD).astype(np.float64)
        freed, freed_stage = _shifted_by_one(frees[dependencies.orders]), _shifted_by_one(stage)
        live_bytes = np.cumsum(allocated * saved_bytes[:, stage] - freed * saved_bytes[:, freed_stage], axis=2)
        return InFlight(
            micro_batches=np.cumsum(allocated - freed, axis=1).max(axis=1) / pipeline.virtual_stages,
            peak_bytes=live_bytes.max(axis=2),
        )

    def actions(self, candidate: int = 0) -> Iterator[tuple[int, Action, float, float]]:
        """Rank, action, begin and end of each, rank after rank in their order."""
        pipeline = self.graph.pipeline
        for rank, (numbers, order) in enumerate(zip(self.graph.orders, actions(pipeline), strict=True)):
            for number, action in zip(numbers, order, strict=False):
                yield rank, action, float(self.start[number, candidate]), float(self.end[number, candidate])


def _shifted_by_one(values: NDArray[Any]) -> NDArray[Any]:
    """Values after each action, shifted by one along the rank's order: the values at the start of each action."""
    return np.concatenate([np.zeros_like(values[:, :1]), values[:, :-1]], axis=1)


@frozen
class InFlight:
    """Activations in flight on each rank.

    micro_batches: (ranks,) maximum number; a micro-batch on one of a rank's stages counts as that stage's share.
    peak_bytes: (candidates, ranks) maximum of saved bytes.
    """

    micro_batches: Floats
    peak_bytes: Floats


def simulate(pipeline: Pipeline, costs: StageCosts) -> Timeline:
    """Runs all candidates of one pipeline at once, level by level: an action begins when its rank is free and its input has
    arrived; a transfer begins when the sender's port is free.
    """
    dependencies = graph(pipeline)
    seconds = _durations(dependencies, costs)
    transfer = dependencies.crossing[:, None] * costs.hop_seconds
    if not costs.overlaps:
        seconds[:-1] += transfer
        transfer = np.zeros_like(transfer)
    durations, transfers = (
        seconds[dependencies.topological_order],
        np.append(transfer, transfer[:1], axis=0)[dependencies.topological_order],
    )
    ends, arrived, port_free = np.zeros_like(durations), np.zeros_like(durations), np.zeros_like(durations)
    crosses = np.append(dependencies.crossing, False)[dependencies.topological_order, None]
    for begin, stop in pairwise(dependencies.level_edges):
        predecessors = dependencies.predecessors[begin:stop]
        finished = np.maximum(
            ends.take(predecessors, axis=0), arrived.take(dependencies.producers[begin:stop], axis=0), out=ends[begin:stop]
        )
        finished += durations[begin:stop]
        sender_free = port_free.take(predecessors, axis=0)
        np.add(np.maximum(finished, sender_free * crosses[begin:stop]), transfers[begin:stop], out=arrived[begin:stop])
        np.maximum(sender_free, arrived[begin:stop] * crosses[begin:stop], out=port_free[begin:stop])
    end = np.zeros_like(seconds)
    end[dependencies.topological_order] = ends
    return Timeline(graph=dependencies, costs=costs, start=end - seconds, end=end)


def _durations(dependencies: Graph, costs: StageCosts) -> Floats:
    """(numbers + none, candidates); nothing for actions that no rank runs."""
    full, candidates = dependencies.full[..., None], len(costs.forward)
    each = np.empty((3, *dependencies.full.shape, candidates))
    forward, inputs, weights = (array.T[:, None] for array in (costs.forward, costs.backward_input, costs.backward_weight))
    each[FORWARD], each[BACKWARD], each[WEIGHT] = forward, inputs + full * weights, ~full * weights
    return np.concatenate([each.reshape(-1, candidates), np.zeros((1, candidates))])
