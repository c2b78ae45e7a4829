"""From a plan to this rank's parallelized parts of the model; the techniques are applied in one fixed order."""

from functools import partial

import torch
from torch import nn

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime.activation_checkpointing import apply_activation_checkpointing
from strategist_runtime.builder import ModelBuilder, NativeModelBuilder, model_builder
from strategist_runtime.compat.recompute import Packing
from strategist_runtime.compilation import compile_layers
from strategist_runtime.mesh import Meshes
from strategist_runtime.model import lora
from strategist_runtime.model.decoder import Decoder, ParallelizableModel, StageSpec
from strategist_runtime.parallel import data_parallel, streaming
from strategist_runtime.parallel.activation_offload import OffloadBuffers, offload_activations, unpack
from strategist_runtime.parallel.context import ContextParallel
from strategist_runtime.parallel.pipeline import stage_specs
from strategist_runtime.precision import forward_context, model_dtype, store


def parallelize(
    plan: Plan,
    settings: TrialSettings,
    meshes: Meshes,
    device: torch.device,
    context: ContextParallel | None = None,
    builder: ModelBuilder | None = None,
) -> tuple[nn.Module, ...]:
    """The stages of this rank, first to last; the whole model without a pipeline. DDP is applied last, since it needs the weights.

    ``builder`` replaces the builder that the settings select.
    """
    if plan.candidate.knobs.offload == "streamed":
        native = builder if isinstance(builder, NativeModelBuilder) else NativeModelBuilder()
        return streaming.parts(plan, meshes.stage_rank, settings, device, native.build, native.fill)
    builder = builder or model_builder(settings)
    parts = tuple(
        _part(builder, plan, settings, stage_spec, meshes, device, context) for stage_spec in stage_specs(plan, meshes.stage_rank)
    )
    if meshes.data is None and meshes.data_ranks > 1:
        return tuple(data_parallel.replicate(part, plan) for part in parts)
    return parts


def _part(
    builder: ModelBuilder,
    plan: Plan,
    settings: TrialSettings,
    stage_spec: StageSpec,
    meshes: Meshes,
    device: torch.device,
    context: ContextParallel | None,
) -> ParallelizableModel:
    """Meta build, tensor and context parallelism, adapters, recomputation, compilation, FSDP2, weights.

    Recomputation wraps a layer before FSDP2, so that parameters are gathered once for both passes in backward. A layer is
    compiled together with its recomputation, which the compiler must see, and without FSDP2's hooks.
    """
    model = builder.build(plan, stage_spec)
    store(model, plan)
    if plan.candidate.knobs.float8 != "none":
        from strategist_runtime.adapters import torchao  # optional dependency

        torchao.convert_linears(_native(model).layers, plan.candidate.knobs)
    builder.split(model, meshes, plan)
    if context is not None:
        context.parallelize_attention(_native(model))
    if plan.workload.train != "full":
        lora.freeze(model, model_dtype(plan))
        quantised = plan.workload.train == "qlora"
        lora.add_adapters(model.layers.values(), rank=plan.workload.lora_rank, alpha=settings.lora_alpha, quantised=quantised)
    buffers = OffloadBuffers(_native(model), device) if plan.candidate.knobs.activation_offload else None
    if buffers is not None:
        offload_activations(_native(model), buffers)
    apply_activation_checkpointing(model, plan.candidate.knobs, None if buffers is None else Packing(buffers.pack, unpack))
    if plan.candidate.knobs.compile:
        compile_layers(model, plan.candidate, device)
    if meshes.data is not None:
        data_parallel.shard(model, plan, meshes.data, meshes.expert_data)
    model.forward_context = partial(forward_context, plan, device)
    _fill(builder, model, plan, settings, device)
    if context is not None:
        native = _native(model)
        native.metadata_builder = context.metadata_builder(native.metadata_builder)
    return model


def _fill(builder: ModelBuilder, model: ParallelizableModel, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
    """Gives the parameters their values, in host memory if they are offloaded."""
    offloaded = plan.candidate.knobs.offload == "all"
    builder.fill(model, plan, settings, torch.device("cpu") if offloaded else device)
    if offloaded:
        _compute_on(_native(model), device)
    if plan.workload.train == "qlora":
        lora.quantise(model, builder.rows_of(plan, settings))


def _native(model: ParallelizableModel) -> Decoder:
    """The model as a ``Decoder``, for techniques that plans with external models cannot have."""
    assert isinstance(model, Decoder)
    return model


def _compute_on(model: Decoder, device: torch.device) -> None:
    """Moves a model's metadata and buffers to the device of the computation; its parameters stay in host memory."""
    model.metadata_builder = model.metadata_builder.to(device)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(device))
