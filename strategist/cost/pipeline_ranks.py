"""Memory of each pipeline rank: first and last rank for every candidate, ranks in between for one plan."""

from dataclasses import replace
from itertools import groupby

import numpy as np

from strategist.contract.cluster import Cluster
from strategist.contract.estimate import MemoryParts
from strategist.contract.model import ModelShape
from strategist.contract.report import Instant, RankMemory
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.calibration import Calibration
from strategist.cost.candidate_arrays import Parts, View, view
from strategist.cost.memory import PARTS, device_memory, memory_instants, needed_memory
from strategist.cost.memory_context import memory_context
from strategist.cost.model_states import Stage, stages
from strategist.cost.price import price, work_on
from strategist.cost.simulated_steps import Simulated
from strategist.expr.columns import Columns


def rank_memory(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    columns: Columns,
    calibration: Calibration,
    simulation: Simulated,
    stack: Stack = NATIVE,
) -> tuple[RankMemory, ...]:
    """Memory of each rank, first to last, equal neighbours grouped: with the layers of each stage, and micro-batches in flight
    as simulated.
    """
    priced, v = price(model, cluster, workload, columns, calibration, stack), view(columns, workload)
    pipeline, in_flight = simulation.timeline.graph.pipeline, simulation.timeline.in_flight().micro_batches
    layers = [0] * pipeline.pp
    for stage, stage_layers in enumerate(simulation.layers[0]):
        layers[pipeline.rank_of(stage)] += int(stage_layers)
    memory = [_parts(priced.first_stage)]
    for rank in range(1, pipeline.pp - 1):
        memory.append(_middle_rank(model, cluster, workload, v, calibration, stack, layers[rank], float(in_flight[rank])))
    memory += [_parts(priced.last_stage)] if pipeline.pp > 1 else []
    equal_ranks = groupby(range(pipeline.pp), key=lambda rank: (layers[rank], memory[rank]))
    return tuple(RankMemory(ranks=tuple(ranks), layers=count, memory=parts) for (count, parts), ranks in equal_ranks)


def step_memory(
    model: ModelShape, cluster: Cluster, workload: Workload, columns: Columns, calibration: Calibration, stack: Stack = NATIVE
) -> tuple[Instant, ...]:
    """Memory of the first or the last rank, the one with the higher peak, at each candidate peak of a step, in order."""
    v = view(columns, workload)
    context = memory_context(model, workload, stack, work_on(model, cluster, workload, stack, v), v)
    ranks = [
        memory_instants(stage, context, cluster.device.allocator_slack, calibration.memory)
        for stage in stages(model, v, stack.memory_traits)
    ]
    peak_rank = max(ranks, key=lambda instants: max(float(needed_memory(parts)[0]) for parts in instants.values()))
    return tuple(Instant(name=name.replace("_", " "), memory=_parts(parts)) for name, parts in peak_rank.items())


def _middle_rank(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    v: View,
    calibration: Calibration,
    stack: Stack,
    layers: int,
    in_flight: float,
) -> MemoryParts:
    """Memory of a rank with neither embedding nor head: like the first, but the inputs of its first stage need gradients, too."""
    work = work_on(model, cluster, workload, stack, v)
    first = stages(model, v, stack.memory_traits)[0]
    zero = np.zeros_like(v.pp)
    stage: Stage = replace(
        first, layers=zero + layers, ends=zero, tied=zero, has_head=zero, in_flight=zero + in_flight,
        outputs=in_flight * v.virtual_stages, weight_pass_share=1.0,
    )  # fmt: skip
    context = memory_context(model, workload, stack, work, v)
    return _parts(device_memory(stage, context, cluster.device.allocator_slack, calibration.memory))


def _parts(found: Parts) -> MemoryParts:
    return MemoryParts(**{name: float(found[name][0]) for name in PARTS})
