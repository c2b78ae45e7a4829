"""One training step: micro-batches, the loss over the global batch, the norm of the whole gradient, the update."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import loss_parallel

from strategist.contract.plan import Plan
from strategist_runtime.data import Batch
from strategist_runtime.data_parallel import gradient_sync
from strategist_runtime.precision import forward_context


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Mean loss over the global batch and norm of its whole gradient, equal on every rank."""

    loss: float
    grad_norm: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, plan: Plan, batch: Batch) -> StepResult:
    """Runs one step and leaves no gradients behind. A step whose loss is not finite updates nothing."""
    loss = accumulate(model, plan, batch)
    result = reduce_result(model, loss)
    if result.finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return result


def accumulate(model: nn.Module, plan: Plan, batch: Batch) -> Tensor:
    """Forward and backward over this rank's rows; returns their mean loss, leaves the global batch's gradient in the model.

    Every micro-batch has equally many tokens, so the mean over micro-batches and data ranks is the mean over the global batch.
    """
    knobs = plan.candidate.knobs
    parts = list(zip(*(rows.split(knobs.micro_batch) for rows in (batch.tokens, batch.targets)), strict=True))
    total = torch.zeros((), device=batch.tokens.device)
    for index, (tokens, targets) in enumerate(parts):
        last = index == len(parts) - 1
        with gradient_sync(model, plan, last=last), _loss_context(plan):
            with forward_context(plan, tokens.device):
                loss = _cross_entropy(model(tokens), targets) / len(parts)
            loss.backward()
        total += _local(loss.detach())
    return total


def reduce_result(model: nn.Module, loss: Tensor) -> StepResult:
    """One all-reduce for both figures. Ranks that hold the same piece of a gradient each count their share of it."""
    figures = torch.stack((loss.double(), squared_norm_share(model).to(loss.device))) / _world_size()
    if dist.is_initialized():
        dist.all_reduce(figures)
    mean, squared = figures.tolist()
    return StepResult(loss=mean, grad_norm=math.sqrt(squared) if squared >= 0 else math.nan)


def squared_norm_share(model: nn.Module) -> Tensor:
    """This rank's term of a sum over ranks that gives world size x the squared norm of the whole gradient.

    A gradient that lies in ``n`` pieces on a mesh, each piece on world / n ranks, counts ``n`` times per piece; it makes no
    difference on which meshes the parameters lie.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norms = torch.stack(torch._foreach_norm([_local(gradient) for gradient in gradients], 2, dtype=torch.float32))
    pieces = torch.tensor([_pieces(gradient) for gradient in gradients], dtype=torch.float64)
    return (norms.double().square() * pieces.to(norms.device)).sum()


def _pieces(gradient: Tensor) -> int:
    """In how many different pieces a gradient lies over the ranks."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes = zip(gradient.device_mesh.shape, gradient.placements, strict=True)
    return math.prod(size for size, placement in sizes if not isinstance(placement, Replicate))


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _loss_context(plan: Plan) -> AbstractContextManager[None]:
    return loss_parallel() if plan.candidate.knobs.loss_parallel else nullcontext()


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """In fp32 whatever the logits are in; [B, T, V] and [B, T]."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
