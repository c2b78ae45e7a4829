"""Copies between device and host beside computation: a CUDA stream of their own; on CPU, where both are one, nothing is copied."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A tensor that may still be under way; ``done`` is None where nothing travels. ``apart`` from what was copied it has memory
    that may serve the next copy."""

    tensor: Tensor
    done: torch.cuda.Event | None = None
    apart: bool = False

    def on_device(self) -> Tensor:
        """The tensor for what the current stream does from here on."""
        if self.done is not None:
            here = torch.cuda.current_stream(self.tensor.device)
            here.wait_event(self.done)
            self.tensor.record_stream(here)  # its memory belongs to the copies' stream
        return self.tensor

    def on_host(self) -> Tensor:
        """The tensor for this thread, once it has arrived."""
        if self.done is not None:
            self.done.synchronize()
        return self.tensor


class Turns:
    """Holds the host back, which would ask for the copies of all turns at once: when it begins one, the device has done all but the
    one before."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.begun: torch.cuda.Event | None = None

    def begin(self) -> None:
        """A turn begins; what was asked for until the turn before began is done."""
        if self.device.type == "cuda":
            before, self.begun = self.begun, torch.cuda.current_stream(self.device).record_event()
            if before is not None:
                before.synchronize()


class Lane:
    """One direction of copies, in the order of asking."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def to_host(self, tensor: Tensor, into: Tensor | None = None) -> Copy:
        """Copies what the current stream will have computed into page-locked memory, that of ``into`` where given."""
        if self.stream is None:
            return Copy(tensor=tensor.detach() if into is None else into.copy_(tensor))
        target = torch.empty_like(tensor, device="cpu", pin_memory=True) if into is None else into
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            target.copy_(tensor, non_blocking=True)
            tensor.record_stream(self.stream)
            return Copy(tensor=target, done=self.stream.record_event(), apart=True)

    def to_device(self, source: Copy) -> Copy:
        """Copies what has come, or will have come, to the host."""
        if self.stream is None:
            return source
        with torch.cuda.stream(self.stream):
            if source.done is not None:
                self.stream.wait_event(source.done)
            tensor = source.tensor.to(self.device, non_blocking=True)
            return Copy(tensor=tensor, done=self.stream.record_event())

    def there(self, tensor: Tensor) -> Copy:
        """What lies on the host, where the current stream may still be copying it."""
        return Copy(tensor=tensor, done=None if self.stream is None else torch.cuda.current_stream(self.device).record_event())

    def onto(self, target: Tensor, source: Tensor) -> None:
        """Copies the host's ``source`` over what lies on the device; whoever reads that afterwards joins first."""
        if self.stream is None:
            target.copy_(source)
            return
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)

    def join(self) -> None:
        """What the current stream does from here on comes after all copies so far."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
