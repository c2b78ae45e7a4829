"""The loss of a micro-batch: cross entropy, as its share of the mean over the step."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor.parallel import loss_parallel

from strategist.contract.loss import chunk_tokens
from strategist.contract.plan import Plan
from strategist_runtime.model.chunked_loss import ChunkedLoss
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.model.loss_scale import LossScale


class Loss:
    """Cross entropy of logits [B, T, V] and targets [B, T] in fp32: the sum over tokens divided by ``tokens``, the number of this
    rank's tokens in a step.

    The sum over the micro-batches is the loss of this rank; the mean over all data ranks is the mean over the global batch. If
    no target is ignored, all micro-batches have equally many tokens and ``tokens`` may stay None. ``scale`` is set for fp16
    only. With ``chunked`` the model itself computes the loss, if it is given targets.
    """

    tokens: float | None = None

    def __init__(self, plan: Plan) -> None:
        self.micro_batches = plan.accumulation
        self.parallel = plan.candidate.knobs.loss_parallel
        self.chunked = plan.candidate.knobs.chunked_loss
        self.chunk_tokens = chunk_tokens(plan.model.hidden_size)
        self.scale = LossScale() if plan.workload.compute_dtype == "fp16" else None

    def attach(self, parts: Iterable[nn.Module]) -> None:
        """Gives the part with the head its chunked loss."""
        for module in (module for part in parts for module in part.modules()):
            if self.chunked and isinstance(module, Decoder):
                module.chunked_loss = _LossModule(self)

    def from_hidden(self, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """The loss of hidden states [B, T, H] and the head's weight [V, H], chunk by chunk."""
        divisor = targets.numel() * self.micro_batches if self.tokens is None else self.tokens
        scale = 1.0 if self.scale is None else self.scale.value
        return ChunkedLoss(chunk_tokens=self.chunk_tokens, divisor=divisor, scale=scale)(hidden, weight, targets)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of a model's output: logits, or with ``chunked`` the loss itself."""
        if self.chunked:
            return logits
        if self.tokens is None:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()) / self.micro_batches
        else:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum") / self.tokens
        return loss if self.scale is None else self.scale.scale_gradients(loss)

    def context(self) -> AbstractContextManager[None]:
        """Context of forward and backward passes; with loss parallelism logits stay sharded over tp through the loss."""
        return loss_parallel() if self.parallel else nullcontext()


class _LossModule(nn.Module):
    """A chunked loss as a part of the model, so that measurements of memory see when it begins."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        return self.loss.from_hidden(hidden, weight, targets)
