"""Simulated host memory: tensors that a plan keeps on the host do not count as device memory."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from strategist_runtime.optimizers.host_in_backward import HostInBackward
from strategist_runtime.optimizers.host_optimizer import HostOptimizer
from strategist_runtime.parallel.streaming import Streaming
from strategist_runtime.training.trainer import Trainer

HOST = "host"
"""The part of what lives there; it is none of a device's memory."""

_born: list[str] = []


def current_part() -> str:
    """The part that tensors which are made now belong to; empty where that follows from the module that makes them."""
    return _born[-1] if _born else ""


@contextmanager
def creating_part(part: str) -> Iterator[None]:
    """Within, what is made belongs to ``part``."""
    _born.append(part)
    try:
        yield
    finally:
        _born.pop()


def update_synchronously(trainer: Trainer) -> None:
    """Updates beside the passes happen where they are asked for: other threads see no tensors without values."""
    if isinstance(trainer.optimizer, HostInBackward):
        trainer.optimizer.beside = lambda work: work()  # type: ignore[method-assign]
    if isinstance(trainer.pipeline, Streaming) and trainer.pipeline.updater is not None:
        trainer.pipeline.updater = SynchronousExecutor()


class SynchronousExecutor(ThreadPoolExecutor):
    """Does what it is given at once."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **options))
        return done


def host_optimizers(optimizer: torch.optim.Optimizer) -> tuple[HostOptimizer, ...]:
    """The optimizers that are a host's."""
    if isinstance(optimizer, HostInBackward):
        return optimizer.hosts
    return (optimizer,) if isinstance(optimizer, HostOptimizer) else ()


def update_on_host(optimizer: HostOptimizer) -> None:
    """What a host's optimizer needs for an update lives there."""
    step = optimizer.inner.step

    def there(*arguments: Any) -> Any:
        with creating_part(HOST):
            return step(*arguments)

    optimizer.inner.step = there  # type: ignore[method-assign, assignment]
