"""Optimizer states and updates in host memory (ZeRO-Offload, arXiv 2101.06840): gradients are copied to the host, parameters
back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from strategist_runtime.compat.dtensor import alias_of, host_copy, local, local_part, update_alias, version_of, with_local
from strategist_runtime.optimizers.combined import Named
from strategist_runtime.parallel.copy_streams import Copy, CopyStream


class HostOptimizer(torch.optim.Optimizer):
    """An optimizer over the device's parameters; ``inner`` has the states and updates the parameters' copies in host memory, the
    twins.

    A gradient is copied as soon as it is reduced, during the backward pass; the device's copy stays for the norm. ``copy_streams``
    are those to the host and back, possibly shared. ``parameters_on_host``: FSDP2 keeps the parameters in host memory
    already; their twins then share that memory.
    """

    def __init__(
        self,
        named_parameters: Sequence[Named],
        make: Callable[[Sequence[Named]], torch.optim.Optimizer],
        *,
        pinned: bool,
        copy_streams: tuple[CopyStream, CopyStream] | None = None,
        parameters_on_host: bool = False,
    ) -> None:
        device = local(named_parameters[0][1]).device
        self.host_stream, self.device_stream = copy_streams or (CopyStream(device), CopyStream(device))
        self.parameters_on_host = parameters_on_host
        twin = alias_of if parameters_on_host else partial(host_copy, pinned=pinned and device.type == "cuda")
        self.twins = {parameter: twin(parameter) for _, parameter in named_parameters}
        self.inner = make([(name, self.twins[parameter]) for name, parameter in named_parameters])
        parameter_of = {twin: parameter for parameter, twin in self.twins.items()}
        groups = [{**group, "params": [parameter_of[twin] for twin in group["params"]]} for group in self.inner.param_groups]
        super().__init__(groups, {})
        self.buffers: dict[nn.Parameter, torch.Tensor] = {}
        self.copies: dict[nn.Parameter, Copy] = {}
        self.arrived: Counter[nn.Parameter] = Counter()
        self.changes: dict[nn.Parameter, int] = {}

    def attach(self, reductions: int) -> None:
        """Makes each gradient be sent after the last of its ``reductions`` in a step, instead of at the end of the step."""

        def send_last(parameter: nn.Parameter) -> None:
            self.arrived[parameter] += 1
            if self.arrived[parameter] == reductions:
                self.send(parameter)

        for parameter in self.twins:
            parameter.register_post_accumulate_grad_hook(send_last)

    def receive(self) -> Iterable[nn.Parameter]:
        """The parameters' copies on the host, after all gradients have been copied to them."""
        for parameter, twin in self.twins.items():
            if parameter.grad is not None and parameter not in self.copies:
                self.send(parameter)
            if parameter in self.copies and twin.grad is None:
                twin.grad = with_local(twin, self.copies[parameter].on_host())
        return self.twins.values()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        self.update()
        self.device_stream.join()

    @torch.no_grad()
    def update(self) -> None:
        """Runs the update, in any thread, and starts the copies of the parameters to the device."""
        self.receive()
        self._refresh()
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({name: value for name, value in group.items() if name != "params"})
        self.inner.step()
        for parameter, twin in self.twins.items():
            if not self.parameters_on_host:
                self.device_stream.copy_into(local(parameter), local(twin))
            self.state[parameter] = self.inner.state[twin]
            self.changes[parameter] = version_of(local_part(parameter)[0])

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self.inner.zero_grad()
        self.copies.clear()
        self.arrived.clear()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.load_states()

    def load_states(self) -> None:
        """Moves loaded states to the host and gives them to the inner optimizer."""
        for parameter, twin in self.twins.items():
            if parameter in self.state:
                self.inner.state[twin] = self.state[parameter] = dict(_on_host(self.state[parameter]))

    def _refresh(self) -> None:
        """Copies parameters to their twins again if they changed outside of the optimizer, for example by loading weights."""
        for parameter, twin in self.twins.items():
            if self.parameters_on_host:
                update_alias(twin, parameter)
            elif self.changes.get(parameter) != version_of(local_part(parameter)[0]):
                local(twin).copy_(local(parameter))

    def send(self, parameter: nn.Parameter) -> None:
        """Starts the copy of a gradient to the host."""
        assert parameter.grad is not None
        if self.parameters_on_host:
            self.copies[parameter] = self.host_stream.host_tensor(local(parameter.grad))
            return
        copy = self.host_stream.to_host(local(parameter.grad), self.buffers.get(parameter))
        if copy.owns_memory:
            self.buffers[parameter] = copy.tensor
        self.copies[parameter] = copy


def _on_host(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        yield name, value.cpu() if isinstance(value, torch.Tensor) else value
