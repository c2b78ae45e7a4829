"""Optimizer in the backward pass: updates each parameter when its gradient is ready, then frees that (arXiv 2306.09782)."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from strategist_runtime.compat.data_parallel import leave_gradients_alone
from strategist_runtime.optimizers import gradients
from strategist_runtime.optimizers.combined import CombinedOptimizer
from strategist_runtime.parallel.comm_hooks import Hook


class InBackward(CombinedOptimizer):
    """An optimizer for each parameter. The norm of the whole gradient is summed up on the way, too late to clip by it; ``copies``
    of parameters count once."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer], copies: Collection[nn.Parameter] = ()) -> None:
        super().__init__(parts)
        self.copies = {id(parameter) for parameter in copies}
        self.of = {parameter: part for part in self.parts for group in part.param_groups for parameter in group["params"]}
        self.shares: list[Tensor] = []
        self.reductions = 1
        self.stream: torch.cuda.Stream | None = None
        self.arrived: Counter[nn.Parameter] = Counter()

    def attach(self, parts: Iterable[nn.Module], reduce: Hook, reductions: int = 1) -> None:
        """Acts from now on: after FSDP2's reduction of a gradient, and after ``reduce``, DDP's of a bucket; of a step's
        ``reductions`` of one parameter after the last."""
        self.reductions = reductions
        for part in parts:
            if isinstance(part, DistributedDataParallel):
                part.register_comm_hook(reduce, self._reduced)
                leave_gradients_alone(part)
                continue
            for parameter in part.parameters():
                if parameter in self.of:
                    parameter.register_post_accumulate_grad_hook(self.arrive)

    def arrive(self, parameter: nn.Parameter) -> None:
        """A gradient is reduced; earlier ones of the step are in it."""
        self.arrived[parameter] += 1
        if self.arrived[parameter] == self.reductions:
            del self.arrived[parameter]
            self.update(parameter)

    @torch.no_grad()
    def update(self, parameter: nn.Parameter) -> None:
        """Takes the step of one parameter and frees its gradient."""
        self._count(parameter)
        self._step(parameter)

    def _count(self, parameter: nn.Parameter) -> None:
        """Adds a gradient to the norm."""
        if id(parameter) not in self.copies:
            self.shares.append(gradients.squared_norm_share([parameter]))

    def _step(self, parameter: nn.Parameter) -> None:
        self.of[parameter].step()
        parameter.grad = None

    def squared_norm_share(self) -> Tensor:
        """This rank's share of what the last backward pass has updated by, as ``gradients.squared_norm_share`` counts it.

        The rest is updated first: what some of the step's micro-batches did not use.
        """
        rest, self.arrived = self.arrived, Counter()
        for parameter in rest:
            self.update(parameter)
        total = torch.stack(self.shares).sum() if self.shares else torch.zeros((), dtype=torch.float64)
        self.shares.clear()
        return total

    def _reduced(self, reduce: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        def update(done: torch.futures.Future[Tensor]) -> Tensor:
            buffer = done.value()
            parameters = cast(list[nn.Parameter], bucket.parameters())
            with self.on_one_stream(buffer.device):
                for parameter, gradient in zip(parameters, bucket.gradients(), strict=True):
                    if self.arrived[parameter] + 1 == self.reductions:
                        parameter.grad = gradient
                    self.arrive(parameter)
            return buffer

        return reduce(bucket).then(update)

    @contextmanager
    def on_one_stream(self, device: torch.device) -> Iterator[None]:
        """A future's callbacks come on streams of a pool, each of which would keep the memory of what is made there."""
        if device.type != "cuda":
            yield
            return
        self.stream, here = self.stream or torch.cuda.Stream(device), torch.cuda.current_stream(device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            yield
        here.wait_stream(self.stream)
