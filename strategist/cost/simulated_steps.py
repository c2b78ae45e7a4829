"""Simulated steps: the step time of a few pipeline candidates from the simulator instead of the closed form."""

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
from strategist.cost.layer_flops import LayerWork, layer_work
from strategist.cost.model_states import StateBytes, state_bytes
from strategist.cost.pipeline_actions import Pipeline
from strategist.cost.pipeline_simulator import StageCosts, Timeline, simulate
from strategist.cost.pipeline_split import split
from strategist.cost.price import Priced
from strategist.cost.step import RankSteps, rank_steps
from strategist.expr.columns import Columns

ON_STAGE = (
    "matmul", "attention", "memory_bound", "recompute", "launch", "tp_communication", "cp_communication", "ep_communication",
)  # fmt: skip
"""Parts of a step that every micro-batch takes on every stage."""

TAIL = ("dp_communication", "offload", "optimizer")
"""Parts that count after a rank's last action: what nothing hides of gathers and reductions, copies, and the update."""


MOST_PASSES = 2**15
"""Forward passes of a step (stages x micro-batches) up to which a pipeline is simulated. Beyond, its bubble is a vanishing share of
the step, and the price in closed form stands."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch on one layer and on the head: (passes, parts of ON_STAGE, rows); passes are forward, backward for
    inputs, and backward for weights. ``layer_bytes`` are kept of a layer on the device meanwhile."""

    layer: Floats
    head: Floats
    layer_bytes: Floats


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Rows of one pipeline: ``layers`` (rows, stages), ``tails`` by part (rows, ranks), the timeline of all, then of all without
    transfers, and seconds by part of the rank that paces each row."""

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
    """The candidates of a complete table with a pipeline of at least so many ranks, those of equal pipelines together.

    Stages have equally many layers or, ``weighted``, as many as make the slowest rank fastest. Stages that are streamed from the
    hosts follow no schedule of torch's and are left out; nodes that differ are left to ``cost.mixed``.
    """
    if cluster.groups:
        return ()
    v = view(columns, workload)
    steps = rank_steps(model, cluster, workload, stack, v, calibration)
    each = _passes(model, workload, stack, v, steps)
    alike: dict[Pipeline, list[int]] = defaultdict(list)
    few = v.pp * v.virtual_stages * v.accumulation <= MOST_PASSES
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
    """One round of a streamed candidate, and what follows the last one: stages of a layer, the embedding before and the head behind
    them, are dealt to the ranks in turn, each with all micro-batches of the round, as breadth-first pipelines order them. The head
    goes forward when it goes backward."""
    v = view(columns, workload)
    steps, pp, head = rank_steps(model, cluster, workload, stack, v, calibration), int(v.pp[0]), model.layers + 1
    own = _passes(model, workload, stack, v, steps)
    own = replace(own, head=np.stack([0 * own.head[0], own.head[0] + own.head[1], own.head[2]]))
    pipeline = Pipeline("looped_bfs", pp, -(-(head + 1) // pp), int(v.round_batches[0]))
    layers = np.array([[float(0 < stage < head) for stage in range(pipeline.stages)]])
    return _simulated(pipeline, [0], own, steps, layers, overlaps=cluster.device.overlaps, head=head)


def pipeline_of(columns: Columns, row: int) -> Pipeline:
    """The pipeline of one candidate; alone, a rank does what the last one of 1F1B does."""
    values = columns.row(row)
    pp, stages, micro_batches = (int(values[name]) for name in ("layout.pp", "knobs.pp_virtual_stages", "knobs.accumulation"))
    return Pipeline(str(values["knobs.pp_schedule"]) if pp > 1 else "1f1b", pp, stages, micro_batches)


def with_simulated(priced: Priced, found: Sequence[Simulated], rows: Sequence[int]) -> Priced:
    """The prices with the time of some rows as it was simulated; ``rows`` are those of the table that was simulated."""
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


def _passes(model: ModelShape, workload: Workload, stack: Stack, v: View, steps: RankSteps) -> Passes:
    """Parts of a micro-batch shared out to its passes: matrices are multiplied once forward and once for each gradient; what the
    forward pass computes or communicates again counts in the backward pass; a loss is half and half."""
    per, work = state_bytes(model, workload, stack), layer_work(model, workload, stack, v)
    middle, head = (np.stack([parts[name] for name in ON_STAGE]) / v.accumulation for parts in (steps.middle, steps.head))
    shares, half = _forward_shares(per, work, v), np.full((len(ON_STAGE), 1), 0.5)
    half[0] = 1 / 2 if per.frozen else 1 / 3
    weights = np.zeros((len(ON_STAGE), 1))
    weights[0] = 0.0 if per.frozen else 1 / 3
    layer, head = middle / np.ceil(model.layers / v.pp), head - middle
    return Passes(
        layer=np.stack([layer * shares, layer * (1 - shares - weights), layer * weights]),
        head=np.stack([head * half, head * (1 - half - weights), head * weights]),
        layer_bytes=np.where(v.activations_away, 0.0, work.activations.saved_bytes),
    )


def _forward_shares(per: StateBytes, work: LayerWork, v: View) -> Floats:
    """Of each part of ON_STAGE, what the forward pass takes: (parts, rows)."""
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
    """Runs each row twice, with transfers and without: the difference is what they add. ``head`` is the stage that has it."""
    tails = {
        name: _by_rank([getattr(steps, kind)[name][rows] for kind in ("first", "middle", "last")], pipeline.pp) for name in TAIL
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
    return Passes(layer=each.layer[:, :, rows], head=each.head[:, :, rows], layer_bytes=each.layer_bytes[rows])


def _layers(pipeline: Pipeline, layers: int, own: Passes, row: int, *, weighted: bool) -> tuple[int, ...]:
    if not weighted:
        return even_layers(layers, pipeline.stages)
    layer, head = (float(array[:, :, row].sum()) for array in (own.layer, own.head))
    return split(pipeline, layers, layer, [*[0.0] * (pipeline.stages - 1), head]).layers


def _by_stage(own: Passes, number: int, given: Floats, head: int) -> Floats:
    """(rows, stages) of one of the passes."""
    found: Floats = given * own.layer[number].sum(axis=0)[:, None]
    found[:, head] += own.head[number].sum(axis=0)
    return found


def _by_rank(three: list[Floats], ranks: int) -> Floats:
    """(rows, ranks) of the first rank's, the last one's, and the middle one's for all others."""
    first, middle, last = three
    return np.stack([first, *[middle] * (ranks - 2), last][:ranks], axis=1)


def _time(own: Passes, given: Floats, tails: Parts, timeline: Timeline, head: int) -> Parts:
    """Seconds by part on the rank that waits least, which paces the others; what it waits for is the bubble."""
    pipeline, rows = timeline.graph.pipeline, np.arange(len(given))
    bubble, steps = timeline.bubble_seconds[len(given) :], timeline.step_seconds
    pace = bubble.argmin(axis=1)
    ranks = np.array([pipeline.rank_of(stage) for stage in range(pipeline.stages)])
    layers = (given * (ranks[None] == pace[:, None])).sum(axis=1)
    heads = (ranks[head] == pace).astype(np.float64)
    parts = pipeline.micro_batches * (layers * own.layer.sum(axis=0) + heads * own.head.sum(axis=0))
    time: Parts = dict(zip(ON_STAGE, parts, strict=True))
    time |= {name: column[rows, pace] for name, column in tails.items()}
    time["pp_communication"] = steps[: len(given)] - steps[len(given) :]
    time["bubble"] = np.maximum(bubble[rows, pace], 0.0)
    return time
