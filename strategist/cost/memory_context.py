"""Inputs of the memory model for every pipeline stage of a table of candidates."""

from functools import cached_property

import numpy as np

from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import LayerActivations, autocasts
from strategist.cost.candidate_arrays import Floats, Mask, View
from strategist.cost.layer_flops import Work
from strategist.cost.layer_widths import compute_bytes
from strategist.cost.loss_memory import LossMemory
from strategist.cost.model_states import Stage, StateBytes, state_bytes
from strategist.frozen import frozen


@frozen
class StateContext:
    """Inputs of the memory of model states that all stages share; ``per``: bytes per parameter."""

    model: ModelShape
    workload: Workload
    stack: Stack
    per: StateBytes
    v: View

    @property
    def traits(self) -> MemoryTraits:
        return self.stack.memory_traits

    @property
    def compute_bytes(self) -> float:
        return compute_bytes(self.workload)

    @cached_property
    def autocast(self) -> Mask:
        return autocasts(self.stack, self.workload, self.v)

    @cached_property
    def frozen_whole(self) -> Mask:
        """Whether each rank of a data-parallel group holds all frozen parameters: stacks with copies or a whole base only shard
        what an update changes (ZeRO-1 and ZeRO-2, arXiv 1910.02054, section 5), unless parameters themselves are sharded.
        """
        v = self.v
        unsharded: Mask = ~(v.frees_parameters | v.streamed | v.offload_all)
        return unsharded if self.per.frozen and self.traits.parameters == "copies" else np.zeros_like(unsharded)


@frozen
class MemoryContext(StateContext):
    """Inputs of the memory model that all stages share.

    layer: activations of one decoder layer, of one micro-batch on one rank.
    loss: memory of the last norm, the projection and the loss.
    """

    layer: LayerActivations
    loss: LossMemory


def state_context(model: ModelShape, workload: Workload, stack: Stack, v: View) -> StateContext:
    """The context of the model states of a table of candidates."""
    return StateContext(model=model, workload=workload, stack=stack, per=state_bytes(model, workload, stack), v=v)


def memory_context(model: ModelShape, workload: Workload, stack: Stack, work: Work, v: View) -> MemoryContext:
    """The context of a table of candidates with their ``work``."""
    per = state_bytes(model, workload, stack)
    layer, loss = work.layer.activations, work.head.memory
    return MemoryContext(model=model, workload=workload, stack=stack, per=per, layer=layer, loss=loss, v=v)


@frozen
class LocalParameters:
    """Numbers of parameters of a stage on one rank.

    shard: stored by the rank.
    layer: one gathered layer, sharded by tp.
    root: embedding and head on this stage, gathered.
    head: the head alone, gathered.
    stage: all layers and the root, gathered.
    """

    shard: Floats
    layer: Floats
    root: Floats
    head: Floats
    stage: Floats


def local_parameters(stage: Stage, c: StateContext) -> LocalParameters:
    """Parameters on one rank: sharded by tp and the FSDP group; gathered layers by tp alone. A streamed head is never split."""
    layer, root = stage.gathered_layer, stage.ends / c.v.tp
    head = np.ceil(stage.has_head) * (c.model.hidden_size * c.model.vocab_size / c.v.tp)
    return LocalParameters(shard=stage.shard, layer=layer, root=root, head=head, stage=stage.layers * layer + root)
