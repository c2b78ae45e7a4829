"""Simulated host memory: tensors that a plan keeps in host memory do not count as device memory."""

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
"""The part of memory on the host; it does not count as device memory."""

_parts: list[str] = []


def current_part() -> str:
    """The part of memory of new tensors; empty if it follows from the module that makes them."""
    return _parts[-1] if _parts else ""


@contextmanager
def creating_part(part: str) -> Iterator[None]:
    """Context in which new tensors belong to ``part``."""
    _parts.append(part)
    try:
        yield
    finally:
        _parts.pop()


def update_synchronously(trainer: Trainer) -> None:
    """Runs background updates in the calling thread, since the modes of a simulation do not apply to other threads."""
    if isinstance(trainer.optimizer, HostInBackward):
        trainer.optimizer.submit_update = lambda work: work()  # type: ignore[method-assign]
    if isinstance(trainer.pipeline, Streaming) and trainer.pipeline.update_executor is not None:
        trainer.pipeline.update_executor = SynchronousExecutor()


class SynchronousExecutor(ThreadPoolExecutor):
    """An executor that runs submitted work at once, in the calling thread."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **options))
        return done


def host_optimizers(optimizer: torch.optim.Optimizer) -> tuple[HostOptimizer, ...]:
    """The host optimizers that ``optimizer`` consists of; empty if it runs on the device."""
    if isinstance(optimizer, HostInBackward):
        return optimizer.hosts
    return (optimizer,) if isinstance(optimizer, HostOptimizer) else ()


def update_on_host(optimizer: HostOptimizer) -> None:
    """Makes temporaries of a host optimizer's update count as host memory."""
    step = optimizer.inner.step

    def step_on_host(*arguments: Any) -> Any:
        with creating_part(HOST):
            return step(*arguments)

    optimizer.inner.step = step_on_host  # type: ignore[method-assign, assignment]
