"""A rank's trainer: its parts of the model, and one training step after the other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime.builder import Builder
from strategist_runtime.compat.dtensor import local
from strategist_runtime.data.batch import Batch
from strategist_runtime.data.documents import SyntheticDocuments
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.text import open_text
from strategist_runtime.measure.spans import PASSES, UPDATE, span
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.model.loss import Loss
from strategist_runtime.optimizers import gradients
from strategist_runtime.optimizers.in_backward import InBackward
from strategist_runtime.optimizers.optimizer import attach, gradient_holders, make_optimizer
from strategist_runtime.parallel.balance import balance_experts, scale_auxiliary_losses
from strategist_runtime.parallel.context import Context
from strategist_runtime.parallel.data_parallel import gradient_sync
from strategist_runtime.parallel.pipeline import Pipeline
from strategist_runtime.parallel.streaming import Streaming
from strategist_runtime.parallelize import parallelize


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Mean loss over the global batch and norm of its whole gradient before clipping, equal on every rank.

    ``skipped``: gradients overflowed in fp16, so nothing was updated, and the next step has a smaller loss scale.
    """

    loss: float
    grad_norm: float
    skipped: bool = False

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
    reader: Reader
    pipeline: Pipeline | Streaming | None
    context: Context | None = None
    first_sample: int = 0

    def batch(self, step: int) -> Batch:
        """This rank's rows of the step's global batch, on its device."""
        count = self.plan.workload.global_batch
        rows = self.reader.read(self.first_sample + step * count, count)
        return self._cut(rows.to(self.device), restored=False)

    def step(self, rows: Batch) -> StepResult:
        """Runs one step and leaves no gradients behind. A step whose loss is not finite updates nothing."""
        with span(PASSES):
            loss = self.accumulate(rows)
        with span(UPDATE):
            return self.update(loss)

    def update(self, loss: Tensor) -> StepResult:
        """The step's figures, and with the gradients in the parts, which it takes away, the parameters' update."""
        result = self.reduced(loss)
        if result.finite:
            factor = gradients.clip_factor(result.grad_norm, self.settings.clip_norm) / self.loss_scale
            gradients.scale(gradient_holders(self.optimizer), factor)
        if result.finite and isinstance(self.pipeline, Streaming):
            self.pipeline.update(self.optimizer)
        else:
            if result.finite:
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        scale = self.loss.scale
        overflowed = scale is not None and math.isfinite(result.loss) and scale.update(result.grad_norm)
        return replace(result, skipped=overflowed)

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
            total += local(loss.detach())
        return total

    def reduced(self, loss: Tensor) -> StepResult:
        """One all-reduce for both figures. Ranks that hold the same piece of a gradient each count their share of it."""
        stages = self.plan.candidate.layout.pp
        if isinstance(self.optimizer, InBackward):
            share = stages * self.optimizer.squared_norm_share()
        else:
            share = gradients.squared_norm_share(self._counted(), stages)
        figures = torch.stack((loss.double() * stages, share.to(loss.device))) / _world_size()
        if dist.is_initialized():
            dist.all_reduce(figures)
        mean, squared = figures.tolist()
        return StepResult(loss=mean, grad_norm=(math.sqrt(squared) if squared >= 0 else math.nan) / self.loss_scale)

    @property
    def loss_scale(self) -> float:
        """By what gradients are multiplied until they are used."""
        return 1.0 if self.loss.scale is None else self.loss.scale.value

    def parameters(self) -> Iterator[nn.Parameter]:
        for part in self.parts:
            yield from part.parameters()

    def _counted(self) -> Iterator[nn.Parameter]:
        """The parameters but a head that is a stage's own copy of the embedding."""
        copied = self.pipeline is not None and self.plan.model.tied_embeddings
        for name, parameter in plain_names(self.parts):
            if not (copied and name == "head.weight"):
                yield parameter


def make_trainer(
    plan: Plan, settings: TrialSettings, meshes: Meshes, device: torch.device, builder: Builder | None = None
) -> Trainer:
    """The model of ``plan``, laid out and with its first weights, and its optimizer; ``builder`` as ``parallelize`` takes it."""
    context = None if meshes.context is None else Context(plan, meshes.context, device)
    parts, loss = parallelize(plan, settings, meshes, device, context, builder), Loss(plan)
    optimizer = make_optimizer(plain_names(parts), plan, settings.learning_rate)
    attach(optimizer, parts, plan)
    balance_experts(optimizer, parts, plan, device)
    scale_auxiliary_losses(parts, loss.scale)
    pipeline = _pipeline(parts, plan, meshes, device, loss, optimizer)
    return Trainer(
        plan=plan,
        settings=settings,
        meshes=meshes,
        device=device,
        parts=parts,
        optimizer=optimizer,
        loss=loss,
        reader=make_reader(plan, settings, meshes),
        pipeline=pipeline,
        context=context,
    )


def make_reader(plan: Plan, settings: TrialSettings, meshes: Meshes) -> Reader:
    """What this rank reads."""
    shape = {"seq_len": plan.workload.seq_len, "vocab_size": plan.model.vocab_size}
    mean = settings.document_tokens(plan.workload)
    if settings.data or not mean:
        text, end = open_text(settings.data, settings.data_type, seed=settings.seed, **shape), settings.document_end
    else:
        text = SyntheticDocuments(seed=settings.seed, mean_tokens=mean, **shape)
        end = text.end
    return Reader(text=text, seed=settings.seed, rank=meshes.data_rank, ranks=meshes.data_ranks, document_end=end)


def _pipeline(
    parts: tuple[nn.Module, ...],
    plan: Plan,
    meshes: Meshes,
    device: torch.device,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
) -> Pipeline | Streaming | None:
    if plan.candidate.knobs.offload == "streamed":
        return Streaming(parts, plan, device, loss, optimizer.update if isinstance(optimizer, InBackward) else None)
    return None if meshes.pipeline is None else Pipeline(parts, plan, meshes, device, loss)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
