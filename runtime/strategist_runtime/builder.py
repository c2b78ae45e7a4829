"""Model builders: the native decoder, or another model with the same interface."""

from functools import partial
from typing import Any, Protocol

import torch

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime.compat.compiler import overlap_tensor_parallel
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import Decoder, ParallelizableModel, StageSpec
from strategist_runtime.model.lora import RowsOf
from strategist_runtime.parallel.experts import apply_expert_parallel
from strategist_runtime.parallel.tensor import apply_tensor_parallel
from strategist_runtime.weights.seeded import materialise, seeded_rows
from strategist_runtime.weights.source import rows_of


class ModelBuilder(Protocol):
    """An architecture, from the meta device to weights that do not depend on the layout."""

    def build(self, plan: Plan, stage_spec: StageSpec) -> ParallelizableModel:
        """A stage on the meta device."""

    def split(self, model: Any, meshes: Meshes, plan: Plan) -> None:
        """Tensor and expert parallelism, of what it has built."""

    def fill(self, model: Any, plan: Plan, settings: TrialSettings, device: torch.device) -> None:
        """Storage and first values."""

    def rows_of(self, plan: Plan, settings: TrialSettings) -> RowsOf:
        """Gives whole rows of a matrix, which are quantised together."""


class NativeModelBuilder:
    """Builds the decoder of a plan's shape."""

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
        computes_on = torch.device(plan.cluster.device.kind)
        materialise(model, plan.model, plan.workload.seq_len, settings.seed, device, settings.weights, computes_on)

    def rows_of(self, plan: Plan, settings: TrialSettings) -> RowsOf:
        return rows_of(settings.weights, plan.model) or partial(seeded_rows, settings.seed, plan.model)


def model_builder(settings: TrialSettings) -> ModelBuilder:
    """The native one, unless the settings name a folder of transformers."""
    if not settings.hugging_face:
        return NativeModelBuilder()
    from strategist_runtime.adapters import transformers  # optional dependency

    return transformers.TransformersModelBuilder(settings.hugging_face)
