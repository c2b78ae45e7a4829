"""Optimizer in the backward pass: updates each parameter when its gradient is ready, then frees the gradient (arXiv 2306.09782)."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from strategist_runtime.compat.data_parallel import disable_bucket_copy_back
from strategist_runtime.optimizers import gradient_norm
from strategist_runtime.optimizers.combined import CombinedOptimizer
from strategist_runtime.parallel.comm_hooks import Hook
from strategist_runtime.parallel.copy_streams import streams_of


class InBackward(CombinedOptimizer):
    """A separate optimizer for each parameter.

    The norm of the whole gradient is summed up during the backward pass, so it is known too late for clipping. ``copies``:
    parameters that are copies of others and do not count in the norm.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer], copies: Collection[nn.Parameter] = ()) -> None:
        super().__init__(parts)
        self.copies = {id(parameter) for parameter in copies}
        self.optimizer_of = {parameter: part for part in self.parts for group in part.param_groups for parameter in group["params"]}
        self.shares: list[Tensor] = []
        self.reductions = 1
        self.stream: Any = None
        self.arrived: Counter[nn.Parameter] = Counter()

    def attach(self, parts: Iterable[nn.Module], reduce: Hook, reductions: int = 1) -> None:
        """Registers hooks that update a parameter after the last of its ``reductions`` in a step: FSDP2's of a gradient, or
        ``reduce``, DDP's of a bucket.
        """
        self.reductions = reductions
        for part in parts:
            if isinstance(part, DistributedDataParallel):
                part.register_comm_hook(reduce, self._reduce_and_update)
                disable_bucket_copy_back(part)
                continue
            for parameter in part.parameters():
                if parameter in self.optimizer_of:
                    parameter.register_post_accumulate_grad_hook(self.reduction_done)

    def reduction_done(self, parameter: nn.Parameter) -> None:
        """Called after each reduction of a gradient, which includes earlier ones of the step; the last one updates the
        parameter.
        """
        self.arrived[parameter] += 1
        if self.arrived[parameter] == self.reductions:
            del self.arrived[parameter]
            self.update(parameter)

    @torch.no_grad()
    def update(self, parameter: nn.Parameter) -> None:
        """Updates one parameter and frees its gradient."""
        self._count(parameter)
        self._step(parameter)

    def _count(self, parameter: nn.Parameter) -> None:
        """Adds a gradient to the norm."""
        if id(parameter) not in self.copies:
            self.shares.append(gradient_norm.squared_norm_share([parameter]))

    def _step(self, parameter: nn.Parameter) -> None:
        self.optimizer_of[parameter].step()
        parameter.grad = None

    def squared_norm_share(self) -> Tensor:
        """This rank's share of the squared gradient norm of the last backward pass, as in ``gradient_norm.squared_norm_share``.

        Parameters that some micro-batches of the step did not use are updated first.
        """
        unfinished, self.arrived = self.arrived, Counter()
        for parameter in unfinished:
            self.update(parameter)
        total = torch.stack(self.shares).sum() if self.shares else torch.zeros((), dtype=torch.float64)
        self.shares.clear()
        return total

    def _reduce_and_update(self, reduce: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        def update(done: torch.futures.Future[Tensor]) -> Tensor:
            buffer = done.value()
            parameters = cast(list[nn.Parameter], bucket.parameters())
            with self.on_one_stream(buffer.device):
                for parameter, gradient in zip(parameters, bucket.gradients(), strict=True):
                    if self.arrived[parameter] + 1 == self.reductions:
                        parameter.grad = gradient
                    self.reduction_done(parameter)
            return buffer

        return reduce(bucket).then(update)

    @contextmanager
    def on_one_stream(self, device: torch.device) -> Iterator[None]:
        """Context that runs a future's callback on one stream. Callbacks are called on streams of a pool, and each of these
        would keep the memory allocated on it.
        """
        streams = streams_of(device)
        if streams is None:
            yield
            return
        self.stream, current_stream = self.stream or streams.stream(), streams.current()
        self.stream.wait_stream(current_stream)
        with streams.on(self.stream):
            yield
        current_stream.wait_stream(self.stream)
