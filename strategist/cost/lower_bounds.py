"""Lower bounds of memory and time of a family of candidates, for all values of its other knobs; and of a candidate's memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.knobs import CHOICES, ZERO_BUBBLE, KnobValue
from strategist.contract.model import ModelShape
from strategist.contract.settings import AXIS_ORDER, AXIS_ORDERS
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import stage_activations
from strategist.cost.calibration import Calibration
from strategist.cost.candidate_arrays import Counts, Floats, View, view
from strategist.cost.memory import held_states
from strategist.cost.memory_context import MemoryContext, local_parameters, memory_context, state_context
from strategist.cost.model_states import Stage, stages
from strategist.cost.price import CHUNK_ROWS, fitting_bytes, work_on
from strategist.cost.process_groups import groups_of
from strategist.cost.step import layer_step_seconds
from strategist.cost.step_inputs import layer_inputs
from strategist.expr.columns import Columns
from strategist.frozen import frozen

FAMILY_KNOBS = (
    "recompute", "saved_operations", "recompute_budget_percent", "sequence_parallel", "compile", "float8", "activation_offload",
    "ep_overlap",
)  # fmt: skip
"""Knobs with one value in a family, like layout and micro-batch. The bounds omit all other knobs or take their cheapest value."""

CHEAPEST_KNOBS: dict[str, KnobValue] = {
    "reshard_after_forward": True, "reshard_group_size": 1, "loss_parallel": True, "chunked_loss": False, "reduce_dtype": "bf16",
    "no_sync": False, "offload": "all", "pp_schedule": "1f1b", "pp_virtual_stages": 1, "float8_all_gather": False,
    "comm_hook": "none", "optimizer_in_backward": False, "async_optimizer_step": False, AXIS_ORDER: AXIS_ORDERS[0],
}  # fmt: skip
"""Values of the other knobs that minimise every part of the bounds."""


@frozen
class TimeBounds:
    """Lower bounds of time, one element per family: seconds of a step without idle time of its pipeline, and idle seconds of a
    pipeline whose stages have one layer, in general and under a zero-bubble schedule.
    """

    step_seconds: Floats
    idle_seconds: Floats
    zero_bubble_idle_seconds: Floats

    def take(self, families: Counts) -> "TimeBounds":
        """The bounds of some families."""
        return TimeBounds(**{name: each[families] for name, each in vars(self).items()})

    def of_candidates(self, model: ModelShape, columns: Columns) -> Floats:
        """Lower bound of a step of each candidate of a table, whose families these are: with what its own schedule leaves idle.

        The first micro-batch passes a stage, of whole layers, of each other rank before the last rank begins, and the last one
        after it ends. Weight gradients can fill the time after the end. Streamed stages follow other schedules.
        """
        values = columns.values
        zero_bubble = np.isin(values["knobs.pp_schedule"], [CHOICES["pp_schedule"].index(name) for name in ZERO_BUBBLE])
        streamed = values["knobs.offload"] == CHOICES["offload"].index("streamed")
        stage_layers = model.layers // (values["layout.pp"] * values["knobs.pp_virtual_stages"])
        idle = stage_layers * np.where(zero_bubble, self.zero_bubble_idle_seconds, self.idle_seconds)
        return np.asarray(self.step_seconds + np.where(streamed, 0.0, idle))


def combined(reduce: Callable[[Sequence[Floats]], Floats], parts: Sequence[TimeBounds]) -> TimeBounds:
    """Several bounds of time as one, each element reduced."""
    return TimeBounds(**{name: reduce([getattr(part, name) for part in parts]) for name in vars(parts[0])})


@frozen
class LowerBounds:
    """Lower bounds, one element per family: ``memory_bytes`` by offload mode, ``room_bytes`` available on a device, and time."""

    memory_bytes: Mapping[str, Floats]
    room_bytes: Floats
    time: TimeBounds


def least_of(bounds: Sequence[LowerBounds]) -> LowerBounds:
    """Lower bounds of the same families on any of several stacks."""
    return LowerBounds(
        memory_bytes={mode: np.minimum.reduce([item.memory_bytes[mode] for item in bounds]) for mode in bounds[0].memory_bytes},
        room_bytes=bounds[0].room_bytes,
        time=combined(np.minimum.reduce, [item.time for item in bounds]),
    )


def lower_bounds(
    model: ModelShape, cluster: Cluster, workload: Workload, columns: Columns, calibration: Calibration, stack: Stack
) -> LowerBounds:
    """Lower bounds of a table of families, whose other knobs are ``CHEAPEST_KNOBS``. All devices of the cluster are equal.

    Seconds: computation and exposed waiting of a rank for its micro-batches, averaged over ranks, so at most those of the
    slowest; no schedule and no split of stages takes less. Memory: of the first stage in the backward pass of its last layer.
    """
    v = view(columns, workload)
    work = work_on(model, cluster, workload, stack, v)
    stage = stages(model, v, stack.memory_traits)[0]
    inputs = layer_inputs(model, groups_of(calibration.calibrated_cluster(cluster), stack, v), workload, stack, stage, work)
    layer_seconds, weight_seconds = layer_step_seconds(inputs, calibration.factors)
    stage = replace(stage, recomputed_share=1.0, outputs=np.zeros_like(v.pp))
    context = memory_context(model, workload, stack, work, v)
    transient = calibration.memory * _transient_bytes(stage, context)
    memory = {mode: held_states(stage, replace(context, v=_offloaded(v, mode))).resident + transient for mode in _OFFLOADS}
    room = fitting_bytes(cluster.device, columns)
    time = TimeBounds(
        step_seconds=v.accumulation * (model.layers / v.pp) * layer_seconds,
        idle_seconds=(v.pp - 1) * layer_seconds,
        zero_bubble_idle_seconds=(v.pp - 1) * weight_seconds,
    )
    return LowerBounds(memory_bytes={**memory, "streamed": np.zeros_like(v.pp)}, room_bytes=room, time=time)


def least_memory(model: ModelShape, workload: Workload, columns: Columns, stack: Stack) -> Floats:
    """Lower bound of the memory of each candidate of a complete table: the model states of its first stage. It takes a tenth of
    the time of a price.
    """
    found = []
    for begin in range(0, columns.rows, CHUNK_ROWS):
        v = view(columns.take(np.arange(begin, min(begin + CHUNK_ROWS, columns.rows))), workload)
        found.append(held_states(stages(model, v, stack.memory_traits)[0], state_context(model, workload, stack, v)).least)
    return np.concatenate([*found, np.zeros(0)])


_OFFLOADS = ("none", "optimizer", "all")


def _offloaded(v: View, mode: str) -> View:
    all_true, all_false = np.ones_like(v.reshard), np.zeros_like(v.reshard)
    return replace(
        v, offload_all=all_true if mode == "all" else all_false, offload_optimizer=all_true if mode == "optimizer" else all_false
    )


def _transient_bytes(stage: Stage, c: MemoryContext) -> Floats:
    """Transient bytes: activations of the fewest micro-batches that a schedule holds, recomputed activations and gradients of
    the last layer, and two gathered layers.
    """
    v, layer = c.v, c.layer
    backward = layer.feed_forward_backward_bytes + np.where(v.recompute_every_second, 0.0, layer.recomputed_bytes)
    bytes_per_parameter = np.where(v.float8, 1.0, c.per.gathered) if c.traits.float8_parameters else c.per.gathered_layer
    gathered = np.minimum(stage.layers, 2.0) * local_parameters(stage, c).layer * bytes_per_parameter
    sharded = ~v.ddp if c.traits.parameters == "shards" else np.zeros_like(v.ddp)
    return stage_activations(stage, layer, v, c.traits).in_flight_bytes + backward + np.where(sharded, gathered, 0.0)
