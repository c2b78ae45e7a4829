"""Simulated steps: step times of pipeline candidates from the simulator instead of the closed form."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

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
from strategist.frozen import frozen

STAGE_PARTS = (
    "matmul", "attention", "memory_bound", "recompute", "launch", "tp_communication", "cp_communication", "ep_communication",
)  # fmt: skip
"""Parts of a step that every micro-batch takes on every stage."""

TAIL_PARTS = ("dp_communication", "offload", "optimizer")
"""Parts after a rank's last action: exposed gathers and reductions, copies, and the update."""


MAX_PASSES = 2**15
"""Maximum number of forward passes of a step (stages x micro-batches) for which a pipeline is simulated. Beyond it the bubble is
a vanishing share of the step, and the closed form is used.
"""


@frozen
class Passes:
    """Seconds of one micro-batch on one layer, on the embedding and on the head: (passes, STAGE_PARTS, rows); passes are forward,
    backward for inputs, and backward for weights. ``layer_bytes`` are the activations of a layer held on the device.
    """

    layer: Floats
    embedding: Floats
    head: Floats
    layer_bytes: Floats


@frozen
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
    min_pp: int = 2,
) -> tuple[Simulated, ...]:
    """Simulates the candidates of a complete table whose pipelines have at least ``min_pp`` ranks; equal pipelines together.

    Stages have equal numbers of layers or, if ``weighted``, the numbers that minimise the slowest rank's time. Streamed stages,
    which follow none of torch's schedules, and heterogeneous nodes (``cost.heterogeneous_nodes``) are left out.
    """
    if cluster.groups:
        return ()
    v = view(columns, workload)
    simulable = (v.pp >= min_pp) & ~v.streamed & (v.pp * v.virtual_stages * v.accumulation <= MAX_PASSES)
    if not simulable.any():
        return ()
    work = work_of(model, workload, stack, v)
    steps = rank_steps(model, cluster, workload, stack, v, work, calibration)
    all_passes = _passes(model, workload, stack, v, work.layer, steps)
    rows_by_pipeline: dict[Pipeline, list[int]] = defaultdict(list)
    for row in np.flatnonzero(simulable).tolist():
        rows_by_pipeline[pipeline_of(columns, row)].append(row)
    simulations = []
    for pipeline, rows in rows_by_pipeline.items():
        passes = _passes_of_rows(all_passes, rows)
        layers = np.array(
            [_stage_layers(pipeline, model.layers, passes, index, weighted=weighted) for index in range(len(rows))],
            dtype=np.float64,
        )
        simulations.append(_simulated(pipeline, rows, passes, steps, layers, overlaps=cluster.device.overlaps))
    return tuple(simulations)


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
    passes = _passes(model, workload, stack, v, work.layer, steps)
    passes = replace(passes, head=np.stack([0 * passes.head[0], passes.head[0] + passes.head[1], passes.head[2]]))
    pipeline = Pipeline("looped_bfs", pp, -(-(head + 1) // pp), int(v.round_batches[0]))
    layers = np.array([[float(0 < stage < head) for stage in range(pipeline.stages)]])
    return _simulated(pipeline, [0], passes, steps, layers, overlaps=cluster.device.overlaps, head=head)


def pipeline_of(columns: Columns, row: int) -> Pipeline:
    """The pipeline of one candidate; a single rank runs the order of the last rank of 1F1B."""
    values = columns.row(row)
    pp, stages, micro_batches = (int(values[name]) for name in ("layout.pp", "knobs.pp_virtual_stages", "knobs.accumulation"))
    return Pipeline(str(values["knobs.pp_schedule"]) if pp > 1 else "1f1b", pp, stages, micro_batches)


def with_simulated(priced: Priced, simulations: Sequence[Simulated], rows: Sequence[int]) -> Priced:
    """The prices with the simulated time of some rows; ``rows`` are the numbers in ``priced`` of the rows of the simulated
    table.
    """
    time = {name: column.copy() for name, column in priced.time.items()}
    uneven_layers = dict(priced.stage_layers)
    for simulation in simulations:
        target_rows = np.asarray(rows)[list(simulation.rows)]
        for name, column in time.items():
            column[target_rows] = simulation.time[name]
        stage_layers = simulation.layers.astype(int).tolist()
        uneven_layers |= {
            int(row): tuple(counts)
            for row, counts in zip(target_rows, stage_layers, strict=True)
            if tuple(counts) != even_layers(sum(counts), len(counts))
        }
    step_seconds: Floats = sum(time.values(), start=np.zeros(1))
    links = np.minimum(priced.communication_seconds, step_seconds)
    return replace(priced, time=time, step_seconds=step_seconds, communication_seconds=links, stage_layers=uneven_layers)


def _passes(model: ModelShape, workload: Workload, stack: Stack, v: View, work: LayerWork, steps: RankSteps) -> Passes:
    """Divides parts of a micro-batch among its passes: matmuls into three equal passes; recomputation and its communication
    belong to the backward pass, like the sums of the embedding's gradients; a loss is half and half.
    """
    per = state_bytes(model, workload, stack)
    middle, embedding, head = (
        np.stack([parts[name] for name in STAGE_PARTS]) / v.accumulation for parts in (steps.middle, steps.embedding, steps.head)
    )
    forward_shares, head_shares = _forward_shares(per, work, v), np.full((len(STAGE_PARTS), 1), 0.5)
    head_shares[0] = 1 / 2 if per.frozen else 1 / 3
    weight_shares = np.zeros((len(STAGE_PARTS), 1))
    weight_shares[0] = 0.0 if per.frozen else 1 / 3
    layer, embedding, head = middle / np.ceil(model.layers / v.pp), embedding - middle, head - middle
    return Passes(
        layer=np.stack([layer * forward_shares, layer * (1 - forward_shares - weight_shares), layer * weight_shares]),
        embedding=np.stack([0 * embedding, embedding, 0 * embedding]),
        head=np.stack([head * head_shares, head * (1 - head_shares - weight_shares), head * weight_shares]),
        layer_bytes=np.where(v.activations_away, 0.0, work.activations.saved_bytes),
    )


def _forward_shares(per: StateBytes, work: LayerWork, v: View) -> Floats:
    """Share of each part of ``STAGE_PARTS`` that the forward pass takes: (parts, rows)."""
    elementwise, zero = work.moved_bytes + work.cast_bytes, np.zeros_like(v.pp)
    return np.stack([
        zero + (1 / 2 if per.frozen else 1 / 3),
        zero + 1 / (1 + ATTENTION_BACKWARD),
        zero + elementwise / (elementwise + work.moved_backward_bytes + work.cast_backward_bytes),
        zero,
        zero + 1 / (3 + work.repeated_elementwise),
        zero + 1 / (2 + work.repeated),
        zero + 1 / (3 + work.repeated),
        zero + 1 / (2 + work.repeated),
    ])  # fmt: skip


def _simulated(
    pipeline: Pipeline, rows: list[int], passes: Passes, steps: RankSteps, layers: Floats, *, overlaps: bool, head: int = -1
) -> Simulated:
    """Runs each row twice, with and without transfers: the difference is the cost of transfers. ``head`` is the stage with the
    head.
    """
    tails = {
        name: _rank_seconds([getattr(steps, kind)[name][rows] for kind in ("first", "middle", "last")], pipeline.pp)
        for name in TAIL_PARTS
    }
    tail = np.asarray(sum(tails.values()))
    forward, inputs, weights = (np.tile(_stage_seconds(passes, number, layers, head), (2, 1)) for number in range(3))
    hop_seconds = steps.hop_seconds[rows]
    costs = StageCosts(
        forward=forward, backward_input=inputs, backward_weight=weights,
        saved_bytes=np.tile(layers * passes.layer_bytes[:, None], (2, 1)),
        hop_seconds=np.append(hop_seconds, 0.0 * hop_seconds), tail_seconds=np.tile(tail, (2, 1)), overlaps=overlaps,
    )  # fmt: skip
    timeline = simulate(pipeline, costs)
    time = _pacing_rank_time(passes, layers, tails, timeline, head)
    return Simulated(rows=tuple(rows), layers=layers, tails=tails, timeline=timeline, passes=passes, time=time)


def _passes_of_rows(passes: Passes, rows: list[int]) -> Passes:
    arrays = {name: getattr(passes, name)[:, :, rows] for name in ("layer", "embedding", "head")}
    return Passes(**arrays, layer_bytes=passes.layer_bytes[rows])


def _stage_layers(pipeline: Pipeline, layers: int, passes: Passes, row: int, *, weighted: bool) -> tuple[int, ...]:
    if not weighted:
        return even_layers(layers, pipeline.stages)
    layer, *ends = (float(array[:, :, row].sum()) for array in (passes.layer, passes.embedding, passes.head))
    return split(pipeline, layers, layer, [ends[0], *[0.0] * (pipeline.stages - 2), ends[1]]).layers


def _stage_seconds(passes: Passes, index: int, layers: Floats, head: int) -> Floats:
    """(rows, stages) seconds of one of the passes."""
    seconds: Floats = layers * passes.layer[index].sum(axis=0)[:, None]
    seconds[:, 0] += passes.embedding[index].sum(axis=0)
    seconds[:, head] += passes.head[index].sum(axis=0)
    return seconds


def _rank_seconds(kinds: list[Floats], ranks: int) -> Floats:
    """(rows, ranks): the first rank's, the last rank's, and the middle rank's for all others."""
    first, middle, last = kinds
    return np.stack([first, *[middle] * (ranks - 2), last][:ranks], axis=1)


def _pacing_rank_time(passes: Passes, layers: Floats, tails: Parts, timeline: Timeline, head: int) -> Parts:
    """Seconds by part on the rank that waits least, which determines the pace; its waiting time is the bubble."""
    pipeline, rows = timeline.graph.pipeline, np.arange(len(layers))
    bubble, steps = timeline.bubble_seconds[len(layers) :], timeline.step_seconds
    pacing_rank = bubble.argmin(axis=1)
    ranks = np.array([pipeline.rank_of(stage) for stage in range(pipeline.stages)])
    paced_layers = (layers * (ranks[None] == pacing_rank[:, None])).sum(axis=1)
    ends = (ranks[0] == pacing_rank) * passes.embedding.sum(axis=0) + (ranks[head] == pacing_rank) * passes.head.sum(axis=0)
    parts = pipeline.micro_batches * (paced_layers * passes.layer.sum(axis=0) + ends)
    time: Parts = dict(zip(STAGE_PARTS, parts, strict=True))
    time |= {name: column[rows, pacing_rank] for name, column in tails.items()}
    time["pp_communication"] = steps[: len(layers)] - steps[len(layers) :]
    time["bubble"] = np.maximum(bubble[rows, pacing_rank], 0.0)
    return time
