"""Model builders: the native decoder, or another model with the same interface."""

from functools import partial
from typing import Any, Protocol

import torch

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime.compat.compiler import overlap_tensor_parallel
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import Decoder, ParallelizableModel, StageSpec
from strategist_runtime.model.lora import ReadRows
from strategist_runtime.parallel.experts import apply_expert_parallel
from strategist_runtime.parallel.tensor import apply_tensor_parallel
from strategist_runtime.weights.seeded import materialise, seeded_rows
from strategist_runtime.weights.source import rows_of


class ModelBuilder(Protocol):
    """Builds a model of one architecture, from the meta device to weights that do not depend on the layout."""

    def build(self, plan: Plan, stage_spec: StageSpec) -> ParallelizableModel:
        """A stage on the meta device."""

    def split(self, model: Any, meshes: Meshes, plan: Plan) -> None:
        """Applies tensor and expert parallelism to a model from ``build``."""

    def fill(self, model: Any, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        """Allocates the parameters on ``device`` and sets their initial values."""

    def rows_of(self, plan: Plan, settings: TrialSettings) -> ReadRows:
        """A function that returns whole rows of a matrix, for quantisation by row."""


class NativeModelBuilder:
    """Builds the native decoder with the plan's model shape."""

    def build(self, plan: Plan, stage_spec: StageSpec) -> Decoder:
        with torch.device("meta"):
            return Decoder(plan.model, stage_spec)

    def split(self, model: Decoder, meshes: Meshes, plan: Plan) -> None:
        if meshes.tensor is not None:
            apply_tensor_parallel(model, meshes.tensor, plan.model, plan.candidate.knobs)
            if plan.candidate.options.async_tp:
                overlap_tensor_parallel(meshes.tensor)
        if plan.model.moe is not None:
            apply_expert_parallel(model, plan, meshes)

    def fill(self, model: Decoder, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        compute_device = torch.device(plan.cluster.device.kind)
        materialise(model, plan.model, plan.workload.seq_len, settings.seed, device, settings.weights, compute_device)

    def rows_of(self, plan: Plan, settings: TrialSettings) -> ReadRows:
        return rows_of(settings.weights, plan.model) or partial(seeded_rows, settings.seed, plan.model)


def model_builder(settings: TrialSettings) -> ModelBuilder:
    """The native decoder's builder, or that of transformers if the settings name a model folder of it."""
    if not settings.hugging_face:
        return NativeModelBuilder()
    from strategist_runtime.adapters import transformers  # optional dependency

    return transformers.TransformersModelBuilder(settings.hugging_face)
