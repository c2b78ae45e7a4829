"""Host optimizer in the backward pass: each update starts when its gradient is on the host (arXiv 2101.06840, 2306.09782)."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from strategist_runtime.measure.spans import HOST_UPDATE, span
from strategist_runtime.optimizers import gradient_norm
from strategist_runtime.optimizers.host_optimizer import HostOptimizer
from strategist_runtime.optimizers.in_backward import InBackward


class HostInBackward(InBackward):
    """A thread runs the updates during the backward pass, in the order in which gradients arrive; the end of the step waits for it.

    A parameter may change once its gradient is complete: the step does not read it any more.
    """

    def __init__(self, parts: Sequence[HostOptimizer], copies: Collection[nn.Parameter] = ()) -> None:
        super().__init__(parts, copies)
        self.hosts = tuple(parts)
        self.host_of = {parameter: part for part in parts for parameter in part.twins}
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="host-update")
        self.updates: list[Future[None]] = []

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        self.finish()

    def finish(self) -> None:
        """Ends the step: waits for the thread, raises its first error, and makes the device wait for its updated parameters."""
        updates, self.updates = self.updates, []
        with span(HOST_UPDATE):
            for update in updates:
                update.result()
        for part in self.hosts:
            part.device_stream.join()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.finish()
        super().zero_grad(set_to_none)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for part in self.hosts:
            part.load_states()

    def submit_update(self, work: Callable[[], None]) -> None:
        """Queues work for the thread."""
        self.updates.append(self.thread.submit(work))

    def squared_norm_share(self) -> Tensor:
        """This rank's share of the squared gradient norm, after waiting for the updates of the thread."""
        for update in self.updates:
            update.result()
        return super().squared_norm_share()

    def _count(self, parameter: nn.Parameter) -> None:
        """Adds a gradient to the norm, unless FSDP2 copies it to the host: the copy may be in progress, so the thread that waits
        for it counts it.
        """
        if not self.host_of[parameter].parameters_on_host:
            super()._count(parameter)

    def _step(self, parameter: nn.Parameter) -> None:
        part = self.host_of[parameter]
        part.send(parameter)
        parameter.grad = None
        self.submit_update(partial(self._update, part))

    @torch.no_grad()
    def _update(self, part: HostOptimizer) -> None:
        if part.parameters_on_host:
            parameter_ids = {id(twin): id(parameter) for parameter, twin in part.twins.items()}
            counted = [twin for twin in part.receive() if parameter_ids[id(twin)] not in self.copies]
            self.shares.append(gradient_norm.squared_norm_share(counted))
        part.update()
        part.zero_grad()
