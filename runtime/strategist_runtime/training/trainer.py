"""Trainer of a rank: its part of the model, and the training step."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime.builder import ModelBuilder
from strategist_runtime.compat.dtensor import local
from strategist_runtime.data.batch import Batch
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.sources import SourceOpener
from strategist_runtime.measure.spans import PASSES, UPDATE, span
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.model.loss import Loss
from strategist_runtime.optimizers import gradient_norm
from strategist_runtime.optimizers.in_backward import InBackward
from strategist_runtime.optimizers.optimizer import attach, make_optimizer, scale_gradients
from strategist_runtime.optimizers.weight_decay import no_decay_parameters
from strategist_runtime.parallel.context import ContextParallel
from strategist_runtime.parallel.data_parallel import gradient_sync
from strategist_runtime.parallel.expert_balance import balance_experts, scale_auxiliary_losses
from strategist_runtime.parallel.pipeline import Pipeline
from strategist_runtime.parallel.streaming import Streaming
from strategist_runtime.parallelize import parallelize


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Mean loss over the global batch and norm of the whole gradient before clipping, equal on every rank.

    ``skipped``: no parameter was updated, because fp16 gradients overflowed (the loss scale is then reduced), or because the
    loss or norm is not finite and the settings skip such steps. ``stop``: at least one rank was requested to end the training
    after this step.
    """

    loss: float
    grad_norm: float
    skipped: bool = False
    stop: bool = False

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


def never_stop() -> bool:
    """Default of ``stop_requested``: always False."""
    return False


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Training step of one rank.

    ``parts`` are the rank's stages, one without a pipeline. ``context`` slices rows for context parallelism. ``stop_requested``
    returns whether this rank was requested to end the training.
    """

    plan: Plan
    settings: TrialSettings
    meshes: Meshes
    device: torch.device
    parts: tuple[nn.Module, ...]
    optimizer: torch.optim.Optimizer
    loss: Loss
    reader: Reader
    pipeline: Pipeline | Streaming | None
    context: ContextParallel | None = None
    first_sample: int = 0
    stop_requested: Callable[[], bool] = never_stop

    def batch(self, step: int) -> Batch:
        """This rank's rows of the step's global batch, on its device."""
        count = self.plan.workload.global_batch
        rows = self.reader.read(self.first_sample + step * count, count)
        return self._context_slices(rows.to(self.device), within_step=False)

    def step(self, rows: Batch) -> StepResult:
        """Runs one step and clears the gradients. If the loss or the gradient norm is not finite, no parameter is updated,
        except by an optimizer in the backward pass.
        """
        with span(PASSES):
            loss = self.accumulate(rows)
        with span(UPDATE):
            return self.update(loss)

    def update(self, loss: Tensor) -> StepResult:
        """Clips the gradients, updates the parameters, clears the gradients, and returns the step's result. No update if the
        loss or norm is not finite.
        """
        result = self.reduced(loss)
        if result.finite:
            factor = gradient_norm.clip_factor(result.grad_norm, self.settings.clip_norm) / self.loss_scale
            scale_gradients(self.optimizer, factor)
        if result.finite and isinstance(self.pipeline, Streaming):
            self.pipeline.update(self.optimizer)
        else:
            if result.finite:
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        scale = self.loss.scale
        overflowed = scale is not None and math.isfinite(result.loss) and scale.update(result.grad_norm)
        return replace(result, skipped=overflowed or not (result.finite or self.settings.non_finite == "stop"))

    def accumulate(self, rows: Batch) -> Tensor:
        """Forward and backward passes over this rank's rows, with gradient accumulation. Returns their mean loss (0 on pipeline
        ranks without the head); afterwards the parts have the gradient of the global batch.
        """
        rows = self._context_slices(rows, within_step=True)
        self._set_loss_tokens(rows.trained)
        with self.loss.context():
            if self.pipeline is not None:
                return self.pipeline.run(rows)
            return self._micro_batches(rows)

    @torch.no_grad()
    def evaluate(self, rows: Batch, trained: float) -> Tensor:
        """Forward pass over this rank's rows. Returns their share of a mean over ``trained`` targets per data rank; 0 on ranks
        without the head.
        """
        rows = self._context_slices(self._context_slices(rows.to(self.device), within_step=False), within_step=True)
        self._set_loss_tokens(trained)
        with self.loss.context():
            if self.pipeline is not None:
                return self.pipeline.evaluate(rows)
            (model,) = self.parts
            total = torch.zeros((), device=self.device)
            for part in rows.micro_batches(self.plan.candidate.knobs.micro_batch):
                total += local(self.loss(model(part.tokens, **part.extras(targets=self.loss.chunked)), part.targets))
            return total

    def mean(self, loss: Tensor) -> float:
        """Mean loss over all ranks, from this rank's share, by one all-reduce."""
        total = loss.double() * self.plan.candidate.layout.pp / _world_size()
        if dist.is_initialized():
            dist.all_reduce(total)
        return float(total)

    def _set_loss_tokens(self, trained: float | None) -> None:
        """Makes the loss divide by this rank's number of targets; None if no target is ignored."""
        self.loss.tokens = None if trained is None else max(trained, 1.0) / self.plan.candidate.layout.cp

    def _context_slices(self, rows: Batch, *, within_step: bool) -> Batch:
        """This rank's context-parallel slices, if rows are sliced at this point: when they are read, or (``within_step``) within
        the step, so that they are whole again after it.
        """
        if self.context is None or self.plan.candidate.options.cp_restore_buffers != within_step:
            return rows
        return self.context.shard_batch(rows)

    def _micro_batches(self, rows: Batch) -> Tensor:
        (model,) = self.parts
        parts = list(rows.micro_batches(self.plan.candidate.knobs.micro_batch))
        total = torch.zeros((), device=self.device)
        for index, part in enumerate(parts):
            with gradient_sync(model, self.plan, last=index == len(parts) - 1):
                loss = self.loss(model(part.tokens, **part.extras(targets=self.loss.chunked)), part.targets)
                loss.backward()
            total += local(loss.detach())
        return total

    def reduced(self, loss: Tensor) -> StepResult:
        """Loss, gradient norm and stop request over all ranks, by one all-reduce. Ranks that hold the same shard of a gradient
        each count their share of it.
        """
        stages = self.plan.candidate.layout.pp
        if isinstance(self.optimizer, InBackward):
            share = stages * self.optimizer.squared_norm_share()
        else:
            share = gradient_norm.squared_norm_share(self._norm_parameters(), stages)
        stop = torch.full((), float(self.stop_requested()), dtype=torch.float64, device=loss.device)
        figures = torch.stack((loss.double() * stages, share.to(loss.device), stop)) / _world_size()
        if dist.is_initialized():
            dist.all_reduce(figures)
        mean, squared, stops = figures.tolist()
        grad_norm = (math.sqrt(squared) if squared >= 0 else math.nan) / self.loss_scale
        return StepResult(loss=mean, grad_norm=grad_norm, stop=stops > 0)

    @property
    def loss_scale(self) -> float:
        """The factor on gradients until the optimizer uses them; 1 without loss scaling."""
        return 1.0 if self.loss.scale is None else self.loss.scale.value

    def parameters(self) -> Iterator[nn.Parameter]:
        for part in self.parts:
            yield from part.parameters()

    def _norm_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters whose gradients count in the norm: all except a last stage's copy of the tied embedding."""
        copied = self.pipeline is not None and self.plan.model.tied_embeddings
        for name, parameter in plain_names(self.parts):
            if not (copied and name == "head.weight"):
                yield parameter


def make_trainer(
    plan: Plan, settings: TrialSettings, meshes: Meshes, device: torch.device, builder: ModelBuilder | None = None
) -> Trainer:
    """The trainer of this rank: the parallelized model of ``plan`` with its initial weights, and its optimizer; ``builder`` as
    in ``parallelize``.
    """
    context = None if meshes.context is None else ContextParallel(plan, meshes.context, device)
    parts, loss = parallelize(plan, settings, meshes, device, context, builder), Loss(plan)
    loss.attach(parts)
    optimizer = make_optimizer(plain_names(parts), plan, settings, no_decay_parameters(parts, settings.no_decay))
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
    """The reader of this rank's training data."""
    dataset = SourceOpener(plan=plan, settings=settings).training_dataset()
    return Reader(dataset=dataset, rank=meshes.data_rank, ranks=meshes.data_ranks)


def _pipeline(
    parts: tuple[nn.Module, ...], plan: Plan, meshes: Meshes, device: torch.device, loss: Loss, optimizer: torch.optim.Optimizer
) -> Pipeline | Streaming | None:
    if plan.candidate.knobs.offload == "streamed":
        return Streaming(parts, plan, device, loss, optimizer.update if isinstance(optimizer, InBackward) else None)
    return None if meshes.pipeline is None else Pipeline(parts, plan, meshes, device, loss)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
