"""A rank's trainer: its parts of the model, and one training step after the other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime import gradients
from strategist_runtime.context import Context
from strategist_runtime.data import Batch, batch
from strategist_runtime.data_parallel import gradient_sync
from strategist_runtime.loss import Loss
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.optimizer import make_optimizer
from strategist_runtime.parallelize import parallelize
from strategist_runtime.pipeline import Pipeline
from strategist_runtime.streaming import Streaming


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Mean loss over the global batch and norm of its whole gradient before clipping, equal on every rank."""

    loss: float
    grad_norm: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """All that a step needs, on one rank. ``parts`` are the stages that it holds, one without a pipeline; ``context`` cuts shared
    rows."""

    plan: Plan
    settings: TrialSettings
    meshes: Meshes
    device: torch.device
    parts: tuple[nn.Module, ...]
    optimizer: torch.optim.Optimizer
    loss: Loss
    pipeline: Pipeline | Streaming | None
    context: Context | None = None

    def batch(self, step: int) -> Batch:
        """This rank's rows of the step's global batch, on its device."""
        workload = self.plan.workload
        rows = batch(
            seed=self.settings.seed,
            step=step,
            global_batch=workload.global_batch,
            seq_len=workload.seq_len,
            vocab_size=self.plan.model.vocab_size,
            rank=self.meshes.data_rank,
            ranks=self.meshes.data_ranks,
        )
        return self._cut(rows.to(self.device), restored=False)

    def step(self, rows: Batch) -> StepResult:
        """Runs one step and leaves no gradients behind. A step whose loss is not finite updates nothing."""
        result = self.reduced(self.accumulate(rows))
        if result.finite:
            gradients.scale(self.parameters(), gradients.clip_factor(result.grad_norm, self.settings.clip_norm))
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return result

    def accumulate(self, rows: Batch) -> Tensor:
        """Forward and backward over this rank's rows; returns their mean loss (0 on ranks of a pipeline without the head), leaves
        the global batch's gradient in the parts."""
        rows = self._cut(rows, restored=True)
        with self.loss.context():
            if self.pipeline is not None:
                return self.pipeline.run(rows)
            return self._micro_batches(rows)

    def _cut(self, rows: Batch, *, restored: bool) -> Batch:
        """This rank's slices, where this is the time to cut: as soon as the rows are read, or within the step where they are to be
        whole again after it."""
        if self.context is None or self.plan.candidate.options.cp_restore_buffers != restored:
            return rows
        return self.context.cut(rows)

    def _micro_batches(self, rows: Batch) -> Tensor:
        (model,) = self.parts
        parts = list(rows.micro_batches(self.plan.candidate.knobs.micro_batch))
        total = torch.zeros((), device=self.device)
        for index, part in enumerate(parts):
            with gradient_sync(model, self.plan, last=index == len(parts) - 1):
                loss = self.loss(model(part.tokens, **part.extras()), part.targets)
                loss.backward()
            total += gradients.local(loss.detach())
        return total

    def reduced(self, loss: Tensor) -> StepResult:
        """One all-reduce for both figures. Ranks that hold the same piece of a gradient each count their share of it."""
        stages = self.plan.candidate.layout.pp
        share = gradients.squared_norm_share(self._counted(), stages).to(loss.device)
        figures = torch.stack((loss.double() * stages, share)) / _world_size()
        if dist.is_initialized():
            dist.all_reduce(figures)
        mean, squared = figures.tolist()
        return StepResult(loss=mean, grad_norm=math.sqrt(squared) if squared >= 0 else math.nan)

    def parameters(self) -> Iterator[nn.Parameter]:
        for part in self.parts:
            yield from part.parameters()

    def _counted(self) -> Iterator[nn.Parameter]:
        """The parameters but a head that is a stage's own copy of the embedding."""
        copied = self.pipeline is not None and self.plan.model.tied_embeddings
        for name, parameter in plain_names(self.parts):
            if not (copied and name == "head.weight"):
                yield parameter


def make_trainer(plan: Plan, settings: TrialSettings, meshes: Meshes, device: torch.device) -> Trainer:
    """The model of ``plan``, laid out and with its first weights, and its optimizer."""
    context = None if meshes.context is None else Context(plan, meshes.context, device)
    parts, loss = parallelize(plan, settings, meshes, device, context), Loss(plan)
    parameters = [parameter for part in parts for parameter in part.parameters() if parameter.requires_grad]
    optimizer = make_optimizer(parameters, plan.workload.optimizer, plan.candidate.options.optimizer_kernel, settings.learning_rate)
    pipeline = _pipeline(parts, plan, meshes, device, loss)
    if isinstance(pipeline, Streaming):
        optimizer.register_step_post_hook(lambda *_: pipeline.refresh())
    return Trainer(
        plan=plan,
        settings=settings,
        meshes=meshes,
        device=device,
        parts=parts,
        optimizer=optimizer,
        loss=loss,
        pipeline=pipeline,
        context=context,
    )


def _pipeline(
    parts: tuple[nn.Module, ...], plan: Plan, meshes: Meshes, device: torch.device, loss: Loss
) -> Pipeline | Streaming | None:
    if plan.candidate.knobs.offload == "streamed":
        return Streaming(parts, plan, device, loss)
    return None if meshes.pipeline is None else Pipeline(parts, plan, meshes, device, loss)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
