"""Two memories where there is one: what a plan keeps on the host is simulated beside the device, and does not count for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from strategist_runtime.optimizers.host_in_backward import HostInBackward
from strategist_runtime.optimizers.host_optimizer import HostOptimizer
from strategist_runtime.parallel import activations
from strategist_runtime.parallel.streams import Copy, Lane

HOST = "host"
"""The part of what lives there; it is none of a device's memory."""

_born: list[str] = []


def born() -> str:
    """The part that tensors which are made now belong to; empty where that follows from who makes them."""
    return _born[-1] if _born else ""


@contextmanager
def born_as(part: str) -> Iterator[None]:
    """Within, what is made belongs to ``part``."""
    _born.append(part)
    try:
        yield
    finally:
        _born.pop()


def keep_apart() -> None:
    """Has what travels between device and host exist in both, as with a GPU; on CPU, where both are one, nothing is copied. Not to
    be undone."""
    Lane.to_host = _to_host  # type: ignore[method-assign]
    Lane.to_device = _to_device  # type: ignore[method-assign]
    activations.Shelf.send = lambda self, tensor: self.owner.outgoing.to_host(tensor)  # type: ignore[method-assign]
    activations.LEAST_BYTES["cpu"] = activations.LEAST_BYTES["cuda"]


def in_turn(optimizer: torch.optim.Optimizer) -> None:
    """Updates beside the backward pass happen where they are asked for: other threads see no tensors without values."""
    if isinstance(optimizer, HostInBackward):
        optimizer.beside = lambda work: work()  # type: ignore[method-assign]


def hosts(optimizer: torch.optim.Optimizer) -> tuple[HostOptimizer, ...]:
    """The optimizers that are a host's."""
    if isinstance(optimizer, HostInBackward):
        return optimizer.hosts
    return (optimizer,) if isinstance(optimizer, HostOptimizer) else ()


def update_on_host(optimizer: HostOptimizer) -> None:
    """What a host's optimizer needs for an update lives there."""
    step = optimizer.inner.step

    def there(*arguments: Any) -> Any:
        with born_as(HOST):
            return step(*arguments)

    optimizer.inner.step = there  # type: ignore[method-assign, assignment]


def _to_host(self: Lane, tensor: Tensor, into: Tensor | None = None) -> Copy:
    with born_as(HOST):
        return Copy(tensor=tensor.detach().clone() if into is None else into.copy_(tensor), apart=True)


def _to_device(self: Lane, source: Copy) -> Copy:
    with born_as("activations"):
        return Copy(tensor=source.tensor.clone())
