"""Model states: bytes per parameter, and the number of parameters of a pipeline stage."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from strategist.contract.memory_traits import TORCH_MEMORY_TRAITS, MemoryTraits
from strategist.contract.model import ModelShape
from strategist.contract.stack import NATIVE, Stack
from strategist.contract.workload import Workload
from strategist.cost.candidate_arrays import Floats, Number, View
from strategist.cost.muon import muon_share
from strategist.frozen import frozen

OPTIMIZER_BYTES = {"adamw": 8.0, "adamw_bf16": 4.0, "adamw8bit": 2 * (1 + 4 / 256), "muon": 4.0, "sgd": 0.0}
"""Bytes of optimizer state per parameter: two moments in fp32; two in bf16; two of 8 bits with an fp32 scale per 256 values
(arXiv 2110.02861); one momentum for the matrices that Muon updates (arXiv 2502.16982); none.
"""

NF4_BYTES = 0.5 + 0.127 / 8
"""Bytes per 4-bit base weight with double quantization of its constants (arXiv 2305.14314, section 3)."""


@frozen
class StateBytes:
    """Bytes per parameter. ``gathered`` is the type in which matmuls compute; ``embedding`` applies to embedding and head.

    With lora and qlora the base is frozen: no gradient and no optimizer state; ``trained`` is the share of adapter parameters.
    """

    stored: float
    embedding: float
    gradient: float
    optimizer: float
    gathered: float
    trained: float

    @property
    def frozen(self) -> bool:
        return self.trained < 1.0

    @property
    def gathered_layer(self) -> float:
        """Bytes per parameter of a gathered layer: frozen weights that are stored in fewer bytes than matmuls compute in are
        gathered as they are stored.
        """
        return min(self.stored, self.gathered) if self.frozen else self.gathered


def state_bytes(model: ModelShape, workload: Workload, stack: Stack = NATIVE) -> StateBytes:
    """Bytes per parameter that a workload stores (mixed precision: arXiv 1910.02054, section 3.1)."""
    compute = 4.0 if workload.precision == "fp32" else 2.0
    gathered = 4.0 if stack.memory_traits.autocast else compute
    optimizer = OPTIMIZER_BYTES[workload.optimizer]
    if workload.optimizer == "muon":
        optimizer += (OPTIMIZER_BYTES["adamw"] - optimizer) * (1 - muon_share(model, stack))
    if workload.train == "full" and workload.precision == "bf16-true":
        optimizer = min(optimizer, 4.0)
        return StateBytes(stored=2.0, embedding=2.0, gradient=2.0, optimizer=optimizer, gathered=2.0, trained=1.0)
    if workload.train == "full":
        gradient = 4.0 if workload.precision == "fp32" else stack.gradient_bytes
        return StateBytes(stored=4.0, embedding=4.0, gradient=gradient, optimizer=optimizer, gathered=gathered, trained=1.0)
    base = max(compute, stack.memory_traits.frozen_bytes)
    unquantized = stack.memory_traits.frozen_bytes if compute < 4 else base
    stored = NF4_BYTES if workload.train == "qlora" else unquantized
    share = lora_parameters(model, workload.lora_rank, stack.adapters) / model.parameters
    return StateBytes(stored=stored, embedding=base, gradient=4.0, optimizer=optimizer, gathered=gathered, trained=share)


def lora_parameters(model: ModelShape, rank: int, adapters: str = "all") -> int:
    """Number of adapter parameters, rank x (in + out) per linear: every linear of attention and dense feed-forwards, or those
    that the stack adapts (arXiv 2106.09685, section 4.1).
    """
    if adapters == "query_value" and model.mla is None:
        return rank * model.layers * (2 * model.hidden_size + (model.heads + model.kv_heads) * model.head_size)
    if adapters == "query_key_value" and model.mla is None:
        return rank * model.layers * (model.hidden_size + model.query_width + model.key_value_width)
    if adapters != "all":
        return rank * model.layers * _attention_widths(model)
    h, shared = model.hidden_size, model.moe.expert_ffn_size * model.moe.shared_experts if model.moe else 0
    dense, shared_experts = (model.ffn_matrices * (h + width) if width else 0 for width in (model.ffn_size, shared))
    return rank * (model.layers * _attention_widths(model) + model.dense_layers * dense + model.moe_layers * shared_experts)


def adapter_inputs(model: ModelShape, adapters: str = "all") -> float:
    """Sum of the input widths of a layer's linears with adapters, in elements: a mean over the layers."""
    h, m = model.hidden_size, model.mla
    if adapters == "query_value" and m is None:
        return 2.0 * h
    attention = (2 * h + m.query_rank + m.key_value_rank if m else 3 * h) + model.attended_width
    if adapters != "all":
        return float(attention)
    shared = model.moe.expert_ffn_size * model.moe.shared_experts if model.moe else 0
    dense, shared_experts = ((model.ffn_matrices - 1) * h + width if width else 0 for width in (model.ffn_size, shared))
    return attention + (model.dense_layers * dense + model.moe_layers * shared_experts) / model.layers


@frozen
class AdapterWidths:
    """Widths of a layer's linears with adapters, in elements, where queries, keys and values are one linear, and so are gate and
    first projection: inputs that tensor parallelism gathers, inputs that it splits, and outputs.
    """

    gathered: float
    split: float
    outputs: float


def joined_adapter_widths(model: ModelShape, adapters: str) -> AdapterWidths:
    """The widths of Megatron's linears with adapters."""
    h, projected = model.hidden_size, adapters in ("all", "attention")
    feed_forward = model.ffn_size * model.dense_layers / model.layers if adapters == "all" else 0.0
    has_feed_forward = float(feed_forward > 0)
    return AdapterWidths(
        gathered=h * (1 + has_feed_forward),
        split=model.attended_width * projected + feed_forward,
        outputs=model.query_width
        + model.key_value_width
        + h * (projected + has_feed_forward)
        + (model.ffn_matrices - 1) * feed_forward,
    )


def _attention_widths(model: ModelShape) -> int:
    """Sum of the input and output widths of one layer's attention linears."""
    h = model.hidden_size
    if model.mla is None:
        return 2 * (h + model.heads * model.head_size) + 2 * (h + model.kv_heads * model.head_size)
    m = model.mla
    queries = h + m.query_rank + m.query_rank + model.query_width if m.query_rank else h + model.query_width
    latents = h + m.key_value_rank + m.rope_head_size
    unfolded = m.key_value_rank + model.heads * (m.nope_head_size + m.value_head_size)
    return queries + latents + unfolded + model.attended_width + h


def model_state_bytes(model: ModelShape, workload: Workload) -> float:
    """Bytes of parameters, gradients and optimizer states of the whole model."""
    per = state_bytes(model, workload)
    ends = model.embedding_parameters + model.head_parameters
    stored = (model.parameters - ends) * per.stored + ends * per.embedding
    if not per.frozen:
        return stored + model.parameters * (per.gradient + per.optimizer)
    return stored + per.trained * model.parameters * (4.0 + per.gradient + per.optimizer)


@frozen
class Stage:
    """One pipeline stage: numbers of parameters before sharding, and micro-batches in flight.

    v: the candidates whose stage it is.
    layers: number of layers.
    dense: parameters of an average layer without routed experts; ``unsharded`` of these are not sharded by tp if etp is 1.
    expert: parameters of the routed experts of an average layer.
    ends: parameters of embedding and head on this stage; ``tied`` are shared by both.
    has_head: 1 if the head is on this stage.
    in_flight: most micro-batches whose activations the stage holds at once.
    losses_in_flight: number of micro-batches whose loss awaits its backward pass.
    outputs: number of stage outputs that await their gradients.
    recomputed_share: share of the layers in flight that are recomputed if every second layer of the model is.
    weight_pass_share: share of the layers in flight whose weight gradients are a separate pass, in schedules that have one; the
        first stage's inputs need no gradient.
    """

    v: View
    layers: Floats
    dense: float
    expert: float
    ends: Floats
    has_head: Floats
    in_flight: Floats
    losses_in_flight: Floats
    unsharded: float = 0.0
    tied: Floats | float = 0.0
    outputs: Floats | float = 0.0
    recomputed_share: Floats | float = 0.5
    weight_pass_share: Floats | float = 1.0

    @cached_property
    def parameters(self) -> Floats:
        return self.layers * (self.dense + self.expert) + self.ends

    @cached_property
    def repeated(self) -> Number:
        """Parameters of one layer that a rank holds beyond its 1 / tp share."""
        return self.unsharded * np.where(self.v.etp == 1, 1 - 1 / self.v.tp, 0.0) if self.unsharded else 0.0

    @cached_property
    def gathered_dense(self) -> Floats:
        """Gathered parameters of one layer on one rank, without routed experts."""
        return self.dense / self.v.tp + self.repeated

    @cached_property
    def gathered_experts(self) -> Number:
        """Gathered parameters of one layer's routed experts on one rank: sharded by ep and etp."""
        return self.expert / (self.v.ep * self.v.etp) if self.expert else 0.0

    @cached_property
    def gathered_layer(self) -> Floats:
        """Gathered parameters of one layer on one rank."""
        return self.gathered_dense + self.gathered_experts

    @cached_property
    def shard(self) -> Floats:
        """Parameters that a rank stores. Experts are sharded by ep and etp instead of tp, in the end as finely."""
        shared = self.parameters / (self.v.fsdp_ranks * self.v.tp)
        return shared + self.layers * self.repeated / self.v.fsdp_ranks if self.unsharded else shared


def stacked(items: Sequence[Stage]) -> Stage:
    """Stages of one model as rows of matrices, so that a formula is computed once for all of them."""
    shape = items[0].layers.shape
    stacked_fields: dict[str, Any] = {}
    for name in (item.name for item in fields(Stage)):
        values = [getattr(stage, name) for stage in items]
        columns = any(map(np.ndim, values))
        stacked_fields[name] = np.stack([np.broadcast_to(value, shape) for value in values]) if columns else values[0]
    return Stage(**stacked_fields)


def stages(model: ModelShape, v: View, traits: MemoryTraits = TORCH_MEMORY_TRAITS) -> tuple[Stage, Stage]:
    """The first stage, with the embedding and the most layers and micro-batches, and the last, with the head.

    In flight on the first stage: 1F1B holds pp micro-batches, GPipe all; interleaving adds (pp - 1) / virtual stages
    (arXiv 2205.05198, section 4.2.3; arXiv 2104.04473, section 2.2), on the last stage's rank (virtual stages - 1) x pp + 1 stages
    of one. In a V all ranks hold pp, DualPipe one more (arXiv 2401.10241, section 6; arXiv 2412.19437, table 2), and the first rank
    both ends. A schedule whose backward passes follow all forward passes keeps what the losses of all micro-batches need.
    """
    expert = model.moe_layers * (model.moe.experts * model.expert_parameters if model.moe else 0) / model.layers
    dense = model.dense_layers * model.dense_layer_parameters + model.moe_layers * model.moe_layer_shared_parameters
    unsharded = model.moe_layers * model.shared_expert_parameters / model.layers if traits.whole_shared_experts else 0.0
    head = model.vocab_size * model.hidden_size
    no_pipeline = v.pp == 1
    in_flight = np.where(v.looped, v.pp + (v.pp - 1) / v.virtual_stages, v.pp + np.where(v.dual_pipe, 1.0, 0.0))
    both_ends = no_pipeline | v.v_shaped
    losses = np.where(~no_pipeline & v.breadth_first, v.accumulation, 1.0)
    last_in_flight = np.where(v.looped, np.minimum(v.pp + (1 - v.pp) / v.virtual_stages, v.accumulation), 1.0)
    first_layers, last_layers = _first_and_last_layers(model, v, traits)
    recomputed: tuple[Floats | float, Floats | float] = 0.5, 0.5
    if v.recompute_every_second.any():
        recomputed = _recomputed_share(first_layers, model, v), _recomputed_share(last_layers, model, v, last=True)
    first = Stage(
        v=v,
        layers=first_layers,
        dense=dense / model.layers,
        unsharded=unsharded,
        expert=expert,
        ends=model.embedding_parameters + np.where(no_pipeline, model.head_parameters, np.where(v.v_shaped, float(head), 0.0)),
        tied=np.where(no_pipeline & model.tied_embeddings, float(head), 0.0),
        has_head=both_ends.astype(np.float64),
        in_flight=np.where(no_pipeline, 1.0, np.where(v.breadth_first, v.accumulation, np.minimum(in_flight, v.accumulation))),
        losses_in_flight=losses,
        recomputed_share=recomputed[0],
        weight_pass_share=1 - 1 / v.virtual_stages,
    )
    first = replace(first, outputs=np.where(no_pipeline, 0.0, first.in_flight * v.virtual_stages - v.v_shaped))
    last = Stage(
        v=v,
        layers=last_layers,
        dense=dense / model.layers,
        unsharded=unsharded,
        expert=expert,
        ends=np.where(no_pipeline, first.ends, np.where(v.v_shaped, 0.0, float(head))),
        tied=first.tied,
        has_head=(~v.v_shaped).astype(np.float64),
        in_flight=np.where(v.v_shaped, first.in_flight, np.where(~no_pipeline & v.breadth_first, v.accumulation, last_in_flight)),
        losses_in_flight=losses,
        recomputed_share=recomputed[1],
    )
    last = replace(last, outputs=np.where(no_pipeline | (v.virtual_stages == 1), 0.0, last.in_flight * v.virtual_stages - 1))
    return _with_streaming(first, model, v), _with_streaming(last, model, v)


def distinct_stages(model: ModelShape, v: View, traits: MemoryTraits) -> tuple[Stage, ...]:
    """The first and the last stage; where no candidate has a pipeline, the only one."""
    return stages(model, v, traits)[: 1 if (v.pp == 1).all() else 2]


def _recomputed_share(layers: Floats, model: ModelShape, v: View, *, last: bool = False) -> Floats:
    """Share of recomputed layers among those that the first or the ``last`` rank holds in flight, if every second layer of the
    model, from the first on, is recomputed.

    It is a half for stages with an even number of layers. With an odd number, a stage that begins with an even layer has one more
    recomputed layer, another stage one less. In V-shaped schedules nearly all layers in flight of the first rank are of the
    first stage.
    """
    layers_per_stage = np.maximum(np.floor(layers / v.virtual_stages), 1.0)
    from_even = np.ceil(layers_per_stage / 2) / layers_per_stage
    of_last = (np.ceil(model.layers / 2) - np.ceil((model.layers - layers_per_stage) / 2)) / layers_per_stage
    if last:
        looped_share = np.where(v.even_pp, np.floor(layers_per_stage / 2) / layers_per_stage, 0.5)
        return np.where(v.looped, looped_share, np.where(v.v_shaped, 0.5, of_last))
    v_shaped_share = ((2 * v.pp - 1) * from_even + of_last) / (2 * v.pp)
    return np.where(v.looped & ~v.even_pp, 0.5, np.where(v.v_shaped, v_shaped_share, from_even))


def _with_streaming(stage: Stage, model: ModelShape, v: View) -> Stage:
    """The stage with streaming applied: layers, embedding and head are assigned to devices in turn, so each device has an equal
    share. A device holds the activations of the current micro-batch and of one that is being copied; the others wait in host
    memory.
    """
    if not v.streamed.any():
        return stage
    return replace(
        stage,
        layers=np.where(v.streamed, model.layers / v.pp, stage.layers),
        ends=np.where(v.streamed, (model.embedding_parameters + model.head_parameters) / v.pp, stage.ends),
        has_head=np.where(v.streamed, 1 / v.pp, stage.has_head),
        in_flight=np.where(v.streamed, np.minimum(v.accumulation, 2.0), stage.in_flight),
        losses_in_flight=np.where(v.streamed, 1.0, stage.losses_in_flight),
        outputs=np.where(v.streamed, 0.0, stage.outputs),
    )


def _first_and_last_layers(model: ModelShape, v: View, traits: MemoryTraits) -> tuple[Floats, Floats]:
    """Number of layers of the first and of the last stage. If split by parameters, a stage ends with the layer that exceeds its
    share of all layers and the head (nanotron, ``parallel/pipeline_parallel`` and ``trainer._init_model``).
    """
    if traits.split == "even":
        return np.ceil(model.layers / v.pp), np.floor(model.layers / v.pp)
    share = (model.layers + model.vocab_size * model.hidden_size / model.dense_layer_parameters) / v.pp
    first = np.minimum(np.floor(share) + 1, model.layers)
    last = np.maximum(model.layers - np.floor(share * (v.pp - 1)) - 1, 0.0)
    return np.where(v.pp == 1, float(model.layers), first), np.where(v.pp == 1, float(model.layers), last)
