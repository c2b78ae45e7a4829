"""Copies between device and host that overlap with computation, on their own CUDA streams; on CPU, where both are one, nothing
is copied.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class Cuda:
    """The stream operations of a CUDA device; ``simulate/virtual_streams.py`` has the same interface for simulations."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stream(self) -> torch.cuda.Stream:
        """A new stream."""
        return torch.cuda.Stream(self.device)

    def current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[None]:
        """Context in which operations are launched on ``stream``."""
        return torch.cuda.stream(stream)

    def record_stream(self, tensor: Tensor, stream: torch.cuda.Stream) -> None:
        """Delays the reuse of a freed tensor's memory until ``stream`` has finished its current work (``record_stream``)."""
        tensor.record_stream(stream)

    def host_memory(self, like: Tensor) -> Tensor:
        """Pinned host memory of the size and type of ``like``."""
        return torch.empty_like(like, device="cpu", pin_memory=True)

    def to_device(self, tensor: Tensor) -> Tensor:
        """An asynchronous copy of a host tensor to the device, on the current stream."""
        return tensor.to(self.device, non_blocking=True)


STREAMS: dict[str, Callable[[torch.device], Any]] = {"cuda": Cuda}
"""Stream operations by device type."""


def streams_of(device: torch.device) -> Any:
    """The stream operations of a device; None for a device without streams."""
    streams = STREAMS.get(device.type)
    return None if streams is None else streams(device)


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A tensor whose copy may still be in progress. ``done`` is the event of its end; None if nothing is being copied.
    ``owns_memory``: the copy has its own memory, which later copies may reuse.
    """

    tensor: Tensor
    done: Any = None
    owns_memory: bool = False

    def on_device(self) -> Tensor:
        """The tensor; the current stream waits for its copy."""
        if self.done is not None:
            streams = streams_of(self.tensor.device)
            current = streams.current()
            current.wait_event(self.done)
            streams.record_stream(self.tensor, current)  # its memory was allocated on the copy stream
        return self.tensor

    def on_host(self) -> Tensor:
        """The tensor; the calling thread waits for its copy."""
        if self.done is not None:
            self.done.synchronize()
        return self.tensor


class CopyThrottle:
    """Limits how far the host runs ahead of the device: by one turn, for example a layer. Otherwise it would launch the copies
    of all turns at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.streams = streams_of(device)
        self.previous: Any = None

    def begin(self) -> None:
        """Begins a turn; waits until the device has done everything that was launched before the previous turn began."""
        if self.streams is not None:
            previous, self.previous = self.previous, self.streams.current().record_event()
            if previous is not None:
                previous.synchronize()


class CopyStream:
    """One direction of copies, executed in launch order on one stream."""

    def __init__(self, device: torch.device) -> None:
        self.streams = streams_of(device)
        self.stream = None if self.streams is None else self.streams.stream()

    def to_host(self, tensor: Tensor, target: Tensor | None = None) -> Copy:
        """Copies a tensor to pinned memory, or to ``target`` if given, after the current stream has computed it."""
        if self.stream is None:
            return Copy(tensor=tensor.detach() if target is None else target.copy_(tensor))
        memory = self.streams.host_memory(tensor) if target is None else target
        self.stream.wait_stream(self.streams.current())
        with self.streams.on(self.stream):
            memory.copy_(tensor, non_blocking=True)
            self.streams.record_stream(tensor, self.stream)
            return Copy(tensor=memory, done=self.stream.record_event(), owns_memory=True)

    def to_device(self, source: Copy) -> Copy:
        """Copies a tensor to the device, after its own copy to the host has ended."""
        if self.stream is None:
            return source
        with self.streams.on(self.stream):
            if source.done is not None:
                self.stream.wait_event(source.done)
            tensor = self.streams.to_device(source.tensor)
            return Copy(tensor=tensor, done=self.stream.record_event())

    def host_tensor(self, tensor: Tensor) -> Copy:
        """A tensor on the host as a ``Copy``; the current stream may still be writing it."""
        return Copy(tensor=tensor, done=None if self.stream is None else self.streams.current().record_event())

    def copy_into(self, target: Tensor, source: Tensor) -> None:
        """Copies ``source`` (host) into ``target`` (device); call ``join`` before ``target`` is read."""
        if self.stream is None:
            target.copy_(source)
            return
        with self.streams.on(self.stream):
            target.copy_(source, non_blocking=True)

    def join(self) -> None:
        """Makes the current stream wait for all copies so far."""
        if self.stream is not None:
            self.streams.current().wait_stream(self.stream)
