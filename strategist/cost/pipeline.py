"""Pipelines: the step of a few candidates simulated action by action, where the price adds it up."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.estimate import Estimate, TimeParts
from strategist.contract.model import ModelShape
from strategist.contract.stack import TORCH, Stack
from strategist.contract.workload import Workload
from strategist.cost.actions import Pipeline
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.compute import ATTENTION_BACKWARD
from strategist.cost.energy import limit_watts, step_joules
from strategist.cost.events import StageCosts, Timeline, simulate
from strategist.cost.memory import Parts
from strategist.cost.price import Priced
from strategist.cost.split import even_layers, split
from strategist.cost.states import StateBytes, state_bytes
from strategist.cost.step import RankSteps, rank_steps
from strategist.cost.view import Floats, View, view
from strategist.cost.work import LayerWork, layer_work
from strategist.expr.columns import Columns

ON_STAGE = (
    "matmul", "attention", "memory_bound", "recompute", "launch", "tp_communication", "cp_communication", "ep_communication",
)  # fmt: skip
"""Parts of a step that every micro-batch takes on every stage."""

TAIL = ("dp_communication", "offload", "optimizer")
"""Parts that count after a rank's last action: what nothing hides of gathers and reductions, copies, and the update."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """One micro-batch on one layer, and on the head, by part (rows,): forward, backward for inputs, backward for weights."""

    layer: tuple[Parts, Parts, Parts]
    head: tuple[Parts, Parts, Parts]
    layer_bytes: Floats

    def seconds(self, number: int) -> tuple[Floats, Floats]:
        """Of a layer and of the head in one of the three passes."""
        zero = np.zeros_like(self.layer_bytes)
        return sum(self.layer[number].values(), start=zero), sum(self.head[number].values(), start=zero)


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
    stack: Stack = TORCH,
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
    for row in np.flatnonzero((v.pp >= least_pp) & ~v.streamed).tolist():
        alike[pipeline_of(columns, row)].append(row)
    return tuple(
        _simulated(pipeline, rows, each, steps, model.layers, weighted=weighted, overlaps=cluster.device.overlaps)
        for pipeline, rows in alike.items()
    )


def pipeline_of(columns: Columns, row: int) -> Pipeline:
    """The pipeline of one candidate; alone, a rank does what the last one of 1F1B does."""
    values = columns.row(row)
    pp, stages, micro_batches = (int(values[name]) for name in ("layout.pp", "knobs.pp_virtual_stages", "knobs.accumulation"))
    return Pipeline(str(values["knobs.pp_schedule"]) if pp > 1 else "1f1b", pp, stages, micro_batches)


def with_simulated(priced: Priced, found: Sequence[Simulated], rows: Sequence[int]) -> Priced:
    """The prices with the time of some rows as it was simulated; ``rows`` are those of the table that was simulated."""
    time = {name: column.copy() for name, column in priced.time.items()}
    for some in found:
        at = np.asarray(rows)[list(some.rows)]
        for name, column in time.items():
            column[at] = some.time[name]
    step_seconds: Floats = sum(time.values(), start=np.zeros(1))
    links = np.minimum(priced.communication_seconds, step_seconds)
    return replace(priced, time=time, step_seconds=step_seconds, communication_seconds=links)


def as_simulated(estimate: Estimate, found: Sequence[Simulated], cluster: Cluster) -> Estimate:
    """The prediction for the only candidate that was simulated, if it was, with its time as that says."""
    if not found:
        return estimate
    time = TimeParts(**{name: float(column[0]) for name, column in found[0].time.items()})
    longer, seconds = time.total / estimate.step_seconds, time.total
    communication, watts = min(estimate.communication_seconds, seconds), limit_watts(cluster)
    return replace(
        estimate,
        time=time,
        step_seconds=seconds,
        tokens_per_second=estimate.tokens_per_second / longer,
        mfu=estimate.mfu / longer,
        communication_seconds=communication,
        comm_ratio=communication / seconds,
        exposed_comm_ratio=time.exposed_communication / seconds,
        price_per_step=None if estimate.price_per_step is None else estimate.price_per_step * longer,
        energy_joules_per_step=None if watts is None else float(step_joules(watts, found[0].time)[0]),
    )


def _passes(model: ModelShape, workload: Workload, stack: Stack, v: View, steps: RankSteps) -> Passes:
    """Parts of a micro-batch shared out to its passes: matrices are multiplied once forward and once for each gradient; what the
    forward pass computes or communicates again counts in the backward pass; a loss is half and half."""
    per, work = state_bytes(model, workload, stack), layer_work(model, workload, stack, v)
    layers = np.ceil(model.layers / v.pp)
    layer = {name: steps.middle[name] / (v.accumulation * layers) for name in ON_STAGE}
    head = {name: (steps.head[name] - steps.middle[name]) / v.accumulation for name in ON_STAGE}
    shares = _forward_shares(per, work)
    weights = 0.0 if per.frozen else 1 / 3
    half = dict.fromkeys(ON_STAGE, 0.5) | {"matmul": shares["matmul"]}
    return Passes(
        layer=_three(layer, shares, weights),
        head=_three(head, half, weights),
        layer_bytes=work.saved_bytes,
    )


def _three(parts: Parts, forward: dict[str, Floats | float], weights: float) -> tuple[Parts, Parts, Parts]:
    """Parts of a micro-batch as those of its three passes."""
    first = {name: seconds * forward[name] for name, seconds in parts.items()}
    last = {name: seconds * (weights if name == "matmul" else 0.0) for name, seconds in parts.items()}
    return first, {name: seconds - first[name] - last[name] for name, seconds in parts.items()}, last


def _forward_shares(per: StateBytes, work: LayerWork) -> dict[str, Floats | float]:
    moved = work.moved_bytes + work.cast_bytes
    return {
        "matmul": 1 / 2 if per.frozen else 1 / 3,
        "attention": 1 / (1 + ATTENTION_BACKWARD),
        "memory_bound": moved / (moved + work.moved_backward_bytes + work.cast_bytes),
        "recompute": 0.0,
        "launch": 1 / (3 + work.repeated_moved),
        "tp_communication": 1 / (2 + work.repeated),
        "cp_communication": 1 / (3 + work.repeated),
        "ep_communication": 1 / (2 + work.repeated),
    }


def _simulated(
    pipeline: Pipeline, rows: list[int], each: Passes, steps: RankSteps, layers: int, *, weighted: bool, overlaps: bool
) -> Simulated:
    """Runs each row twice, with transfers and without: the difference is what they add."""
    own = _rows(each, rows)
    given = np.array([_layers(pipeline, layers, own, k, weighted=weighted) for k in range(len(rows))], dtype=np.float64)
    tails = {
        name: _by_rank([getattr(steps, kind)[name][rows] for kind in ("first", "middle", "last")], pipeline.pp) for name in TAIL
    }
    tail = np.asarray(sum(tails.values()))
    forward, inputs, weights = (np.tile(_by_stage(own.seconds(number), given), (2, 1)) for number in range(3))
    hops = steps.hop_seconds[rows]
    costs = StageCosts(
        forward=forward, backward_input=inputs, backward_weight=weights,
        kept_bytes=np.tile(given * own.layer_bytes[:, None], (2, 1)),
        hop_seconds=np.append(hops, 0.0 * hops), tail_seconds=np.tile(tail, (2, 1)), overlaps=overlaps,
    )  # fmt: skip
    timeline = simulate(pipeline, costs)
    time = _time(own, given, tails, timeline)
    return Simulated(rows=tuple(rows), layers=given, tails=tails, timeline=timeline, passes=own, time=time)


def _rows(each: Passes, rows: list[int]) -> Passes:
    def taken(three: tuple[Parts, Parts, Parts]) -> tuple[Parts, Parts, Parts]:
        first, second, third = (
            {name: np.broadcast_to(c, each.layer_bytes.shape)[rows] for name, c in parts.items()} for parts in three
        )
        return first, second, third

    return Passes(layer=taken(each.layer), head=taken(each.head), layer_bytes=each.layer_bytes[rows])


def _layers(pipeline: Pipeline, layers: int, own: Passes, row: int, *, weighted: bool) -> tuple[int, ...]:
    if not weighted:
        return even_layers(layers, pipeline.stages)
    layer, head = (float(sum(own.seconds(number)[which][row] for number in range(3))) for which in (0, 1))
    return split(pipeline, layers, layer, [*[0.0] * (pipeline.stages - 1), head]).layers


def _by_stage(seconds: tuple[Floats, Floats], given: Floats) -> Floats:
    layer, head = seconds
    found = given * layer[:, None]
    found[:, -1] += head
    return found


def _by_rank(three: list[Floats], ranks: int) -> Floats:
    """(rows, ranks) of the first rank's, the last one's, and the middle one's for all others."""
    first, middle, last = three
    return np.stack([first, *[middle] * (ranks - 2), last][:ranks], axis=1)


def _time(own: Passes, given: Floats, tails: Parts, timeline: Timeline) -> Parts:
    """Seconds by part on the rank that waits least, which paces the others; what it waits for is the bubble."""
    pipeline, rows = timeline.graph.pipeline, np.arange(len(given))
    bubble, steps = timeline.bubble_seconds[len(given) :], timeline.step_seconds
    pace = bubble.argmin(axis=1)
    ranks = np.array([pipeline.rank_of(stage) for stage in range(pipeline.stages)])
    layers = (given * (ranks[None] == pace[:, None])).sum(axis=1)
    heads = (ranks[-1] == pace).astype(np.float64)
    time = {
        name: pipeline.micro_batches * sum(layers * a[name] + heads * b[name] for a, b in zip(own.layer, own.head, strict=True))
        for name in ON_STAGE
    }
    time |= {name: column[rows, pace] for name, column in tails.items()}
    time["pp_communication"] = steps[: len(given)] - steps[len(given) :]
    time["bubble"] = np.maximum(bubble[rows, pace], 0.0)
    return time
