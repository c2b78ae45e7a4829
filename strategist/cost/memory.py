"""Device memory at the peak of a step, by part."""

import numpy as np

from strategist.cost.candidate_arrays import Floats, Parts, total
from strategist.cost.memory_context import LocalParameters, MemoryContext, StateContext, local_parameters
from strategist.cost.memory_timeline import TRANSIENT_PARTS, StageTimeline, instants, peak_memory
from strategist.cost.model_states import Stage
from strategist.cost.reserved_memory import cached_blocks, fragmentation
from strategist.expr.columns import Columns
from strategist.frozen import frozen

PARTS = (
    "parameters", "unsharded_parameters", "gradients", "optimizer", "activations", "logits", "communication", "allocator", "cache",
)  # fmt: skip
"""Names of ``MemoryParts``; all but ``cache`` add up to what a device must have."""

COMMUNICATOR_BYTES = 2**30
"""Bytes that NCCL takes for one communicator, outside of torch's allocator: 4 MiB per channel and connection (NCCL_BUFFSIZE), as
much again for its other protocols, 32 channels, both directions, rings and trees. Usable memory already excludes one.
"""

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")


def device_memory(stage: Stage, context: MemoryContext, slack: float, factor: float) -> Parts:
    """Bytes by part at the peak of a step on a device of one pipeline stage.

    ``slack`` is the allocator's share of the first GiB of transient memory, ``factor`` a calibration of that memory.
    """
    states = held_states(stage, context)
    timeline = _timeline(stage, context, states)
    peak = peak_memory(timeline, factor)
    reserved = {"allocator": fragmentation(timeline, peak, slack), "cache": cached_blocks(timeline, peak, slack)}
    return {"parameters": states.parameters, "optimizer": states.optimizer, **peak, **reserved}


def memory_instants(stage: Stage, context: MemoryContext, slack: float, factor: float) -> dict[str, Parts]:
    """Bytes by part at each candidate peak, by its name, in the order of a step; the largest is that of ``device_memory``."""
    found = held_states(stage, context)
    timeline, zero = _timeline(stage, context, found), np.zeros_like(context.v.tp)
    states = {"parameters": found.parameters, "optimizer": found.optimizer}
    by_instant = {}
    for name, peak in instants(timeline, factor).items():
        parts = {part: peak.get(part, zero) for part in ("gradients", *TRANSIENT_PARTS)}
        by_instant[name] = {**states, **parts, "allocator": fragmentation(timeline, parts, slack), "cache": zero}
    return by_instant


def _timeline(stage: Stage, context: MemoryContext, states: "HeldStates") -> StageTimeline:
    return StageTimeline(
        stage=stage, context=context, local=states.local, gradients=states.gradients, first_gradients=states.first_gradients,
        optimizer=states.optimizer,
    )  # fmt: skip


def needed_memory(parts: Parts) -> Floats:
    """Bytes that the device must have: all parts without the allocator's cache."""
    return total({name: parts[name] for name in PARTS if name != "cache"})


@frozen
class HeldStates:
    """Bytes of model states that stay on the device between passes of layers.

    local: the stage's parameters on one rank.
    first_gradients: those when the first of a rank's stages that run one by one begins its backward pass, or ``gradients``.
    """

    local: LocalParameters
    parameters: Floats
    optimizer: Floats
    gradients: Floats
    first_gradients: Floats

    @property
    def resident(self) -> Floats:
        """Parameters and optimizer states, which stay throughout the step."""
        return self.parameters + self.optimizer

    @property
    def least(self) -> Floats:
        """Lower bound of the peak: all model states, which exist together in the optimizer step."""
        return self.resident + self.gradients


def held_states(stage: Stage, c: StateContext) -> HeldStates:
    """Model states on a device of a stage.

    Gradients are those of all stages, and separately those present when the first of stages that run one by one begins its backward
    pass: the last stage has its own gradients unsharded, in addition to shards of the others.
    """
    per, traits, v, local = c.per, c.traits, c.v, local_parameters(stage, c)
    on_host = v.offload_all | v.streamed
    gradients_on_host = {"all": on_host, "optimizer": on_host | v.offload_optimizer, "never": v.streamed}[traits.gradients_on_host]
    shards = v.fsdp_ranks * v.tp
    stored = (stage.layers * (stage.dense + stage.expert) * per.stored + stage.ends * per.embedding) / shards
    if stage.unsharded:
        stored = stored + stage.layers * stage.repeated * per.stored / v.fsdp_ranks
    stored = np.where(c.frozen_whole, (local.stage - local.root) * per.stored + local.root * per.embedding, stored)
    trained = local.shard * (per.trained if per.frozen else 1.0)
    adapters = trained * (4.0 if per.frozen else 0.0)
    # Gradients under no_sync stay unsharded; reduced ones are allocated layer by layer.
    fsdp = v.fsdp | v.offload_all
    unsharded = v.no_sync & fsdp if traits.parameters == "copies" else v.no_sync & (v.accumulation > 1) & fsdp
    gradient_bytes = (per.gradient if traits.parameters == "copies" else v.reduce_bytes) * (per.trained if per.frozen else 1.0)
    reduced_gradients = np.where(gradients_on_host, 0.0, trained * per.gradient)
    root_gradients, all_gradients = local.root * gradient_bytes, local.stage * gradient_bytes
    sequential = v.sequential_backward if traits.parameters == "shards" else np.zeros_like(v.sequential_backward)
    stage_gradients = (all_gradients - root_gradients) / v.virtual_stages
    at_last_stage = (
        stage_gradients + np.where(stage.has_head > 0, 0.0, root_gradients) + (1 - 1 / v.virtual_stages) * reduced_gradients
    )
    at_first_stage = np.where(
        unsharded, stage_gradients + np.where(stage.has_head > 0, root_gradients, 0.0), reduced_gradients / v.virtual_stages
    )
    gradients = np.where(unsharded, np.where(sequential, at_last_stage, all_gradients), reduced_gradients)
    updated_in_backward = (
        v.update_at_once & ~gradients_on_host & (v.accumulation == 1)
    )  # several micro-batches are accumulated first
    gradients = np.where(updated_in_backward, gradients / np.maximum(stage.layers, 1.0), gradients)
    gradients = gradients + np.where(v.low_rank_hook, local.stage * 4.0, 0.0)  # error feedback of PowerSGD
    masters_away = v.offload_optimizer & (traits.parameters == "copies") & (c.compute_bytes < per.stored)
    return HeldStates(
        local=local,
        parameters=np.where(on_host | masters_away, 0.0, stored + adapters),
        optimizer=np.where(on_host | v.offload_optimizer, 0.0, trained * per.optimizer),
        gradients=gradients,
        first_gradients=np.where(sequential, at_first_stage, gradients),
    )


def communicator_memory(columns: Columns) -> Floats:
    """Bytes of the communicators beyond the one that usable memory already excludes."""
    axes = sum((columns.values[f"layout.{name}"] > 1).astype(np.float64) for name in AXES)
    return COMMUNICATOR_BYTES * np.maximum(axes - 1.0, 0.0)
