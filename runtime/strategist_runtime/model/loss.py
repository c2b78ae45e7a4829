"""The loss of a micro-batch: cross entropy, as its share of the step's mean."""

from contextlib import AbstractContextManager, nullcontext

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor.parallel import loss_parallel

from strategist.contract.plan import Plan
from strategist_runtime.model.loss_scale import LossScale


class Loss:
    """Logits [B, T, V] and targets [B, T] to the sum over tokens, divided by ``tokens``, those of this rank in a step.

    The sum over the micro-batches is this rank's part, and the mean of those over all data ranks the mean over the global batch.
    Where no target is ignored, every micro-batch has equally many tokens, and ``tokens`` need not be set. In fp32 whatever the
    logits are in. ``scale`` is there for fp16.
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
        """Around forward and backward passes: with it logits stay sharded over tp through the loss."""
        return loss_parallel() if self.parallel else nullcontext()
