"""Simulated steps: step times of pipeline candidates from the simulator instead of the closed form."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.pipeline_stages import even_layers
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.candidate_arrays import Floats, Parts, View, view
from strategist.cost.compute import ATTENTION_BACKWARD
from strategist.cost.layer_flops import LayerWork, work_of
from strategist.cost.model_states import StateBytes, state_bytes
from strategist.cost.pipeline_actions import Pipeline
from strategist.cost.pipeline_simulator import StageCosts, Timeline, simulate
from strategist.cost.pipeline_split import split
from strategist.cost.price import Priced
from strategist.cost.step import RankSteps, rank_steps
from strategist.expr.columns import Columns

STAGE_PARTS = (
    "matmul", "attention", "memory_bound", "recompute", "launch", "tp_communication", "cp_communication", "ep_communication",
)  # fmt: skip
"""Parts of a step that every micro-batch takes on every stage."""

TAIL_PARTS = ("dp_communication", "offload", "optimizer")
"""Parts after a rank's last action: exposed gathers and reductions, copies, and the update."""


MAX_PASSES = 2**15
"""Maximum number of forward passes of a step (stages x micro-batches) for which a pipeline is simulated. Beyond it the bubble is
a vanishing share of the step, and the closed form stands.
"""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch on one layer, on the embedding and on the head: (passes, STAGE_PARTS, rows); passes are forward,
    backward for inputs, and backward for weights. ``layer_bytes`` are the activations of a layer held on the device.
    """

    layer: Floats
    embedding: Floats
    head: Floats
    layer_bytes: Floats


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Simulation of the rows with one pipeline.

    layers: (rows, stages).
    tails: (rows, ranks) by part.
    timeline: of all rows, then of all rows without transfers.
    time: seconds by part of the rank that paces each row.
    """

    rows: tuple[int, ...]
    layers: Floats
    tails: Parts
    timeline: Timeline
    passes: Passes
    time: Parts


def simulated(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration = NEUTRAL,
    stack: Stack = NATIVE,
    weighted: bool = False,
    least_pp: int = 2,
) -> tuple[Simulated, ...]:
    """Simulates the candidates of a complete table whose pipelines have at least ``least_pp`` ranks; equal pipelines together.

    Stages have equal numbers of layers or, if ``weighted``, the numbers that minimise the slowest rank's time. Streamed stages,
    which follow none of torch's schedules, and heterogeneous nodes (``cost.heterogeneous_nodes``) are left out.
    """
    if cluster.groups:
        return ()
    v = view(columns, workload)
    work = work_of(model, workload, stack, v)
    steps = rank_steps(model, cluster, workload, stack, v, work, calibration)
    each = _passes(model, workload, stack, v, work.layer, steps)
    alike: dict[Pipeline, list[int]] = defaultdict(list)
    few = v.pp * v.virtual_stages * v.accumulation <= MAX_PASSES
    for row in np.flatnonzero((v.pp >= least_pp) & ~v.streamed & few).tolist():
        alike[pipeline_of(columns, row)].append(row)
    found = []
    for pipeline, rows in alike.items():
        own = _rows(each, rows)
        layers = np.array([_layers(pipeline, model.layers, own, k, weighted=weighted) for k in range(len(rows))], dtype=np.float64)
        found.append(_simulated(pipeline, rows, own, steps, layers, overlaps=cluster.device.overlaps))
    return tuple(found)


def streamed_round(
    model: ModelShape, cluster: Cluster, workload: Workload, columns: Columns, calibration: Calibration, stack: Stack = NATIVE
) -> Simulated:
    """Simulates one round of a streamed candidate and what follows the last round: the embedding, stages of one layer and the
    head are assigned to the ranks in turn, each with all micro-batches of the round, as in breadth-first pipelines. The
    head's forward pass is part of its backward pass.
    """
    v = view(columns, workload)
    work, pp, head = work_of(model, workload, stack, v), int(v.pp[0]), model.layers + 1
    steps = rank_steps(model, cluster, workload, stack, v, work, calibration)
    own = _passes(model, workload, stack, v, work.layer, steps)
    own = replace(own, head=np.stack([0 * own.head[0], own.head[0] + own.head[1], own.head[2]]))
    pipeline = Pipeline("looped_bfs", pp, -(-(head + 1) // pp), int(v.round_batches[0]))
    layers = np.array([[float(0 < stage < head) for stage in range(pipeline.stages)]])
    return _simulated(pipeline, [0], own, steps, layers, overlaps=cluster.device.overlaps, head=head)


def pipeline_of(columns: Columns, row: int) -> Pipeline:
    """The pipeline of one candidate; a single rank runs the order of the last rank of 1F1B."""
    values = columns.row(row)
    pp, stages, micro_batches = (int(values[name]) for name in ("layout.pp", "knobs.pp_virtual_stages", "knobs.accumulation"))
    return Pipeline(str(values["knobs.pp_schedule"]) if pp > 1 else "1f1b", pp, stages, micro_batches)


def with_simulated(priced: Priced, found: Sequence[Simulated], rows: Sequence[int]) -> Priced:
    """The prices with the simulated time of some rows; ``rows`` are the numbers in ``priced`` of the rows of the simulated
    table.
    """
    time = {name: column.copy() for name, column in priced.time.items()}
    uneven = dict(priced.stage_layers)
    for some in found:
        at = np.asarray(rows)[list(some.rows)]
        for name, column in time.items():
            column[at] = some.time[name]
        cut = some.layers.astype(int).tolist()
        uneven |= {
            int(row): tuple(each) for row, each in zip(at, cut, strict=True) if tuple(each) != even_layers(sum(each), len(each))
        }
    step_seconds: Floats = sum(time.values(), start=np.zeros(1))
    links = np.minimum(priced.communication_seconds, step_seconds)
    return replace(priced, time=time, step_seconds=step_seconds, communication_seconds=links, stage_layers=uneven)


def _passes(model: ModelShape, workload: Workload, stack: Stack, v: View, work: LayerWork, steps: RankSteps) -> Passes:
    """Divides parts of a micro-batch among its passes: matmuls into three equal passes; recomputation and its communication
    belong to the backward pass, like the sums of the embedding's gradients; a loss is half and half.
    """
    per = state_bytes(model, workload, stack)
    middle, embedding, head = (
        np.stack([parts[name] for name in STAGE_PARTS]) / v.accumulation for parts in (steps.middle, steps.embedding, steps.head)
    )
    shares, half = _forward_shares(per, work, v), np.full((len(STAGE_PARTS), 1), 0.5)
    half[0] = 1 / 2 if per.frozen else 1 / 3
    weights = np.zeros((len(STAGE_PARTS), 1))
    weights[0] = 0.0 if per.frozen else 1 / 3
    layer, embedding, head = middle / np.ceil(model.layers / v.pp), embedding - middle, head - middle
    return Passes(
        layer=np.stack([layer * shares, layer * (1 - shares - weights), layer * weights]),
        embedding=np.stack([0 * embedding, embedding, 0 * embedding]),
        head=np.stack([head * half, head * (1 - half - weights), head * weights]),
        layer_bytes=np.where(v.activations_away, 0.0, work.activations.saved_bytes),
    )


def _forward_shares(per: StateBytes, work: LayerWork, v: View) -> Floats:
    """Share of each part of ON_STAGE that the forward pass takes: (parts, rows)."""
    moved, zero = work.moved_bytes + work.cast_bytes, np.zeros_like(v.pp)
    return np.stack([
        zero + (1 / 2 if per.frozen else 1 / 3),
        zero + 1 / (1 + ATTENTION_BACKWARD),
        zero + moved / (moved + work.moved_backward_bytes + work.cast_bytes),
        zero,
        zero + 1 / (3 + work.repeated_moved),
        zero + 1 / (2 + work.repeated),
        zero + 1 / (3 + work.repeated),
        zero + 1 / (2 + work.repeated),
    ])  # fmt: skip


def _simulated(
    pipeline: Pipeline, rows: list[int], own: Passes, steps: RankSteps, given: Floats, *, overlaps: bool, head: int = -1
) -> Simulated:
    """Runs each row twice, with and without transfers: the difference is the cost of transfers. ``head`` is the stage with the
    head.
    """
    tails = {
        name: _by_rank([getattr(steps, kind)[name][rows] for kind in ("first", "middle", "last")], pipeline.pp)
        for name in TAIL_PARTS
    }
    tail = np.asarray(sum(tails.values()))
    forward, inputs, weights = (np.tile(_by_stage(own, number, given, head), (2, 1)) for number in range(3))
    hops = steps.hop_seconds[rows]
    costs = StageCosts(
        forward=forward, backward_input=inputs, backward_weight=weights,
        kept_bytes=np.tile(given * own.layer_bytes[:, None], (2, 1)),
        hop_seconds=np.append(hops, 0.0 * hops), tail_seconds=np.tile(tail, (2, 1)), overlaps=overlaps,
    )  # fmt: skip
    timeline = simulate(pipeline, costs)
    time = _time(own, given, tails, timeline, head)
    return Simulated(rows=tuple(rows), layers=given, tails=tails, timeline=timeline, passes=own, time=time)


def _rows(each: Passes, rows: list[int]) -> Passes:
    three = {name: getattr(each, name)[:, :, rows] for name in ("layer", "embedding", "head")}
    return Passes(**three, layer_bytes=each.layer_bytes[rows])


def _layers(pipeline: Pipeline, layers: int, own: Passes, row: int, *, weighted: bool) -> tuple[int, ...]:
    if not weighted:
        return even_layers(layers, pipeline.stages)
    layer, *ends = (float(array[:, :, row].sum()) for array in (own.layer, own.embedding, own.head))
    return split(pipeline, layers, layer, [ends[0], *[0.0] * (pipeline.stages - 2), ends[1]]).layers


def _by_stage(own: Passes, number: int, given: Floats, head: int) -> Floats:
    """(rows, stages) seconds of one of the passes."""
    found: Floats = given * own.layer[number].sum(axis=0)[:, None]
    found[:, 0] += own.embedding[number].sum(axis=0)
    found[:, head] += own.head[number].sum(axis=0)
    return found


def _by_rank(three: list[Floats], ranks: int) -> Floats:
    """(rows, ranks): the first rank's, the last rank's, and the middle rank's for all others."""
    first, middle, last = three
    return np.stack([first, *[middle] * (ranks - 2), last][:ranks], axis=1)


def _time(own: Passes, given: Floats, tails: Parts, timeline: Timeline, head: int) -> Parts:
    """Seconds by part on the rank that waits least, which paces the others; its waiting time is the bubble."""
    pipeline, rows = timeline.graph.pipeline, np.arange(len(given))
    bubble, steps = timeline.bubble_seconds[len(given) :], timeline.step_seconds
    pace = bubble.argmin(axis=1)
    ranks = np.array([pipeline.rank_of(stage) for stage in range(pipeline.stages)])
    layers = (given * (ranks[None] == pace[:, None])).sum(axis=1)
    ends = (ranks[0] == pace) * own.embedding.sum(axis=0) + (ranks[head] == pace) * own.head.sum(axis=0)
    parts = pipeline.micro_batches * (layers * own.layer.sum(axis=0) + ends)
    time: Parts = dict(zip(STAGE_PARTS, parts, strict=True))
    time |= {name: column[rows, pace] for name, column in tails.items()}
    time["pp_communication"] = steps[: len(given)] - steps[len(given) :]
    time["bubble"] = np.maximum(bubble[rows, pace], 0.0)
    return time
