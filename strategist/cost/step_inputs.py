"""Step inputs: everything a step's time depends on except calibration factors, one element per candidate.

They hold no model, cluster or stack, only figures, so that candidates of any kind can be joined and timed in one call.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.contract.cluster import Cluster
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, Number, View
from strategist.cost.comm import Collectives, StageCollectives, collectives, stage_collectives
from strategist.cost.compute import LayerCompute, layer_compute
from strategist.cost.layer_flops import Work
from strategist.cost.model_states import Stage, state_bytes
from strategist.cost.offload import OffloadBytes, offload_bytes
from strategist.cost.optimizer_update import piece_copies, update_bytes, update_matmuls
from strategist.cost.process_groups import Groups, groups_of
from strategist.cost.rates import Matmuls, Rates, dense_matmuls, expert_matmuls, head_matmuls, rates_of, with_stack_kernels
from strategist.cost.weight_traffic import sharding_bytes, weight_bytes
from strategist.frozen import frozen


@frozen
class StageInputs:
    """Inputs of a step's time that differ by pipeline stage.

    layers: number of layers.
    has_head: 1 if the head is on this stage.
    last_reduced: share of the parameters whose gradients are reduced after those of all layers.
    copied_bytes: memory traffic of the copies around FSDP2's collectives, of each layer and micro-batch.
    weight_bytes: memory traffic of each micro-batch to dequantize and cast weights and to accumulate gradients.
    update_bytes: memory traffic of the optimizer; ``update_matmuls`` are those of Muon.
    piece_copies: kernels that copy pieces of updated parameters.
    """

    layers: Floats
    has_head: Floats
    last_reduced: Floats
    links: StageCollectives
    host: OffloadBytes
    copied_bytes: Floats
    weight_bytes: Floats
    update_bytes: Floats
    update_matmuls: Matmuls
    piece_copies: Floats


@frozen
class LayerInputs:
    """Inputs that all stages of a pipeline share, because their layers are equal.

    hides_reductions, hides_replicas: 1 if gradients are reduced during the backward pass, between ranks that share states and
        between replicas: buckets are reduced as soon as they are full.
    slows_computation: 1 if collectives take multiprocessors from computation.
    ports_free: 1 if tensor and expert collectives leave the ports between nodes to FSDP's; ring_ports_free: rings of attention.
    keys_share: share of attention beside which keys and values of other context-parallel ranks arrive.
    """

    v: View
    rates: Rates
    layer: LayerCompute
    head: Matmuls
    head_moved_bytes: Floats
    saved_bytes: Floats
    kernels: Floats
    routing_kernels: Floats
    awaited_kernels: Floats
    expert_kernels: Floats
    links: Collectives
    hides_reductions: Floats
    hides_replicas: Number
    slows_computation: Number
    ports_free: Floats
    ring_ports_free: Floats
    keys_share: Floats
    model_layers: Number

    @property
    def rows(self) -> int:
        """Number of candidates."""
        return len(self.v.pp)


@frozen
class StepInputs(LayerInputs):
    """Step inputs of candidates, as columns: of a layer, and of a pipeline's first and last stage."""

    first: StageInputs
    last: StageInputs


def step_inputs(
    model: ModelShape, cluster: Cluster, workload: Workload, stack: Stack, v: View, work: Work, ends: Sequence[Stage]
) -> StepInputs:
    """Inputs of candidates that share everything but their settings, with these first and last stages; links are those of the given
    cluster.
    """
    groups = groups_of(cluster, stack, v)
    layers = layer_inputs(model, groups, workload, stack, ends[0], work)
    stages = [stage_inputs(stage, model, groups, workload, stack, work) for stage in ends]
    return StepInputs(**vars(layers), first=stages[0], last=stages[-1])


def layer_inputs(model: ModelShape, groups: Groups, workload: Workload, stack: Stack, stage: Stage, work: Work) -> LayerInputs:
    """Inputs that all stages share; ``stage`` is any of them."""
    per, cluster, v = state_bytes(model, workload, stack), groups.cluster, groups.v
    device, layer = with_stack_kernels(cluster.device, stack), work.layer
    dense, experts = dense_matmuls(layer, workload, device, v), expert_matmuls(layer, workload, device, v)
    inside, ring_inside = (ranks <= cluster.gpus_per_node for ranks in (np.maximum(v.tp, v.ep * v.etp), v.cp * v.tp))
    shards_cross = v.fsdp_ranks * v.tp > cluster.gpus_per_node
    return LayerInputs(
        v=v,
        rates=rates_of(cluster, stack, workload, model),
        layer=layer_compute(layer, per, stack, dense, experts),
        head=head_matmuls(work.head, workload, device),
        head_moved_bytes=work.head.moved_bytes,
        saved_bytes=layer.activations.saved_bytes,
        kernels=layer.kernels,
        routing_kernels=layer.routing_kernels,
        awaited_kernels=layer.awaited_kernels,
        expert_kernels=layer.expert_kernels,
        links=collectives(model, workload, stack, stage, layer, per, groups),
        hides_reductions=np.where(
            stack.hides_resharded_reductions & v.frees_parameters & (v.fsdp_ranks > 1),
            1.0,
            float(stack.hides_reductions),
        ),
        hides_replicas=float(stack.hides_reductions or stack.bucket_bytes > 0),
        slows_computation=float(device.overlaps and stack.collectives == "nccl"),
        ports_free=(inside & shards_cross).astype(np.float64),
        ring_ports_free=(ring_inside & shards_cross).astype(np.float64),
        keys_share=(v.cp - 1 if stack.ring_keys == "passed" else 1.0) / v.cp,
        model_layers=float(model.layers),
    )


def stage_inputs(stage: Stage, model: ModelShape, groups: Groups, workload: Workload, stack: Stack, work: Work) -> StageInputs:
    """Inputs of one stage, or of ``stacked`` ones."""
    per, cluster, v = state_bytes(model, workload, stack), groups.cluster, groups.v
    return StageInputs(
        layers=stage.layers,
        has_head=stage.has_head,
        last_reduced=np.where(v.streamed | per.frozen, 0.0, stage.ends / np.maximum(stage.parameters, 1.0)),
        links=stage_collectives(model, workload, stack, stage, per, groups),
        host=offload_bytes(stage.shard, stage.parameters / v.tp, per, workload, stack, v, cluster.gpus_per_node),
        copied_bytes=sharding_bytes(stage, per, stack, v),
        weight_bytes=weight_bytes(
            stage, model.vocab_size * model.hidden_size, work.layer.repeated_matmuls, per, workload, stack, v
        ),
        update_bytes=update_bytes(stage.shard, per, workload, stack, v),
        update_matmuls=update_matmuls(model, stage, workload, stack, cluster.device, v),
        piece_copies=piece_copies(stage, stack, v),
    )


def concatenate(items: Sequence[StepInputs]) -> StepInputs:
    """The candidates of all items, one after the other."""
    rows = [item.rows for item in items]
    found: StepInputs = _map_columns(lambda columns, rows: np.concatenate(list(map(_column, columns, rows))), items, rows)
    return found


def take(inputs: StepInputs, index: Sequence[int] | NDArray[np.intp]) -> StepInputs:
    """The candidates at these row numbers, in this order."""
    chosen = np.asarray(index, dtype=np.intp)
    found: StepInputs = _map_columns(lambda columns, rows: _column(columns[0], rows[0])[chosen], [inputs], [inputs.rows])
    return found


def _map_columns(function: Callable[[Sequence[Any], Sequence[int]], Any], items: Sequence[Any], rows: Sequence[int]) -> Any:
    """A value like ``items`` with ``function`` applied to each column, recursively through dataclasses."""
    first, *_ = items
    if not is_dataclass(first):
        return function(items, rows)
    found = {field.name: _map_columns(function, [getattr(item, field.name) for item in items], rows) for field in fields(first)}
    return replace(first, **found)  # type: ignore[type-var]


def _column(value: Any, rows: int) -> Any:
    """The value as a column of ``rows`` elements."""
    return value if np.ndim(value) else np.full(rows, value)
