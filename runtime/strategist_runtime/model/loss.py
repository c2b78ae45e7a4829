"""The loss of a micro-batch: cross entropy, as its share of the mean over the step."""

from contextlib import AbstractContextManager, nullcontext

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor.parallel import loss_parallel

from strategist.contract.plan import Plan
from strategist_runtime.model.loss_scale import LossScale


class Loss:
    """Cross entropy of logits [B, T, V] and targets [B, T] in fp32: the sum over tokens divided by ``tokens``, the number of this
    rank's tokens in a step.

    The sum over the micro-batches is the loss of this rank; the mean over all data ranks is the mean over the global batch. If
    no target is ignored, all micro-batches have equally many tokens and ``tokens`` may stay None. ``scale`` is set for fp16
    only.
    """

    tokens: float | None = None

    def __init__(self, plan: Plan) -> None:
        self.micro_batches = plan.accumulation
        self.parallel = plan.candidate.knobs.loss_parallel
        self.scale = LossScale() if plan.workload.compute_dtype == "fp16" else None

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.tokens is None:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()) / self.micro_batches
        else:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum") / self.tokens
        return loss if self.scale is None else self.scale.applied(loss)

    def context(self) -> AbstractContextManager[None]:
        """Context of forward and backward passes; with loss parallelism logits stay sharded over tp through the loss."""
        return loss_parallel() if self.parallel else nullcontext()
