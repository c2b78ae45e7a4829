"""Updates in the backward pass: each parameter changes as soon as its gradient is there, which is then freed (arXiv 2306.09782)."""

from collections.abc import Collection, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from strategist_runtime import compat
from strategist_runtime.optimizers import gradients
from strategist_runtime.optimizers.together import Together
from strategist_runtime.parallel.comm_hooks import Hook


class InBackward(Together):
    """An optimizer for each parameter. The norm of the whole gradient is summed up on the way, too late to clip by it; ``copies``
    of parameters count once."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer], copies: Collection[nn.Parameter] = ()) -> None:
        super().__init__(parts)
        self.copies = {id(parameter) for parameter in copies}
        self.of = {parameter: part for part in self.parts for group in part.param_groups for parameter in group["params"]}
        self.shares: list[Tensor] = []

    def attach(self, parts: Iterable[nn.Module], reduce: Hook) -> None:
        """Acts from now on: after FSDP2's reduction of a gradient, and after ``reduce``, DDP's of a bucket."""
        for part in parts:
            if isinstance(part, DistributedDataParallel):
                part.register_comm_hook(reduce, self._reduced)
                compat.leave_gradients_alone(part)
                continue
            for parameter in part.parameters():
                if parameter in self.of:
                    parameter.register_post_accumulate_grad_hook(self.update)

    @torch.no_grad()
    def update(self, parameter: nn.Parameter) -> None:
        """Takes the step of one parameter and frees its gradient."""
        if id(parameter) not in self.copies:
            self.shares.append(gradients.squared_norm_share([parameter]))
        self.of[parameter].step()
        parameter.grad = None

    def squared_norm_share(self) -> Tensor:
        """This rank's share of what the last backward pass has updated by, as ``gradients.squared_norm_share`` counts it."""
        total = torch.stack(self.shares).sum() if self.shares else torch.zeros((), dtype=torch.float64)
        self.shares.clear()
        return total

    def _reduced(self, reduce: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        def update(done: torch.futures.Future[Tensor]) -> Tensor:
            buffer = done.value()
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                parameter.grad = gradient
                self.update(parameter)
            return buffer

        return reduce(bucket).then(update)
