"""Copies between device and host beside computation: a CUDA stream of their own; on CPU, where both are one, nothing is copied."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class Cuda:
    """What is asked of a CUDA device; a simulation has the same (``simulate/virtual_streams.py``)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stream(self) -> torch.cuda.Stream:
        """A new one."""
        return torch.cuda.Stream(self.device)

    def current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[None]:
        """Within, operations are asked for on ``stream``."""
        return torch.cuda.stream(stream)

    def keep(self, tensor: Tensor, stream: torch.cuda.Stream) -> None:
        """Has the memory of a tensor of another stream wait, when it is freed, for what ``stream`` does with it so far."""
        tensor.record_stream(stream)

    def host_memory(self, like: Tensor) -> Tensor:
        """Page-locked."""
        return torch.empty_like(like, device="cpu", pin_memory=True)

    def copied(self, tensor: Tensor) -> Tensor:
        """A copy on the device of what lies on the host, under way on the current stream."""
        return tensor.to(self.device, non_blocking=True)


STREAMS: dict[str, Callable[[torch.device], Any]] = {"cuda": Cuda}
"""By the kind of a device."""


def streams_of(device: torch.device) -> Any:
    """Those of a device; None where there are none."""
    make = STREAMS.get(device.type)
    return None if make is None else make(device)


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A tensor that may still be under way; ``done`` is None where nothing travels. ``apart`` from what was copied it has memory
    that may serve the next copy."""

    tensor: Tensor
    done: Any = None
    apart: bool = False

    def on_device(self) -> Tensor:
        """The tensor for what the current stream does from here on."""
        if self.done is not None:
            streams = streams_of(self.tensor.device)
            here = streams.current()
            here.wait_event(self.done)
            streams.keep(self.tensor, here)  # its memory belongs to the copies' stream
        return self.tensor

    def on_host(self) -> Tensor:
        """The tensor for this thread, once it has arrived."""
        if self.done is not None:
            self.done.synchronize()
        return self.tensor


class CopyThrottle:
    """Holds the host back, which would ask for the copies of all turns at once: when it begins one, the device has done all but the
    one before."""

    def __init__(self, device: torch.device) -> None:
        self.streams = streams_of(device)
        self.begun: Any = None

    def begin(self) -> None:
        """A turn begins; what was asked for until the turn before began is done."""
        if self.streams is not None:
            before, self.begun = self.begun, self.streams.current().record_event()
            if before is not None:
                before.synchronize()


class Lane:
    """One direction of copies, in the order of asking."""

    def __init__(self, device: torch.device) -> None:
        self.streams = streams_of(device)
        self.stream = None if self.streams is None else self.streams.stream()

    def to_host(self, tensor: Tensor, into: Tensor | None = None) -> Copy:
        """Copies what the current stream will have computed into page-locked memory, that of ``into`` where given."""
        if self.stream is None:
            return Copy(tensor=tensor.detach() if into is None else into.copy_(tensor))
        target = self.streams.host_memory(tensor) if into is None else into
        self.stream.wait_stream(self.streams.current())
        with self.streams.on(self.stream):
            target.copy_(tensor, non_blocking=True)
            self.streams.keep(tensor, self.stream)
            return Copy(tensor=target, done=self.stream.record_event(), apart=True)

    def to_device(self, source: Copy) -> Copy:
        """Copies what has come, or will have come, to the host."""
        if self.stream is None:
            return source
        with self.streams.on(self.stream):
            if source.done is not None:
                self.stream.wait_event(source.done)
            tensor = self.streams.copied(source.tensor)
            return Copy(tensor=tensor, done=self.stream.record_event())

    def there(self, tensor: Tensor) -> Copy:
        """What lies on the host, where the current stream may still be copying it."""
        return Copy(tensor=tensor, done=None if self.stream is None else self.streams.current().record_event())

    def onto(self, target: Tensor, source: Tensor) -> None:
        """Copies the host's ``source`` over the device's tensor; a later reader must join first."""
        if self.stream is None:
            target.copy_(source)
            return
        with self.streams.on(self.stream):
            target.copy_(source, non_blocking=True)

    def join(self) -> None:
        """What the current stream does from here on comes after all copies so far."""
        if self.stream is not None:
            self.streams.current().wait_stream(self.stream)
