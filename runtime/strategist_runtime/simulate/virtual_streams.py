"""Virtual CUDA streams and events: the order between operations, without a device.

Each stream, and the host, is a line of operations in the order of asking. A line knows of each other line how much of it is over
(vector clocks, Lamport 1978, Fidge 1988): an operation comes after what its line knows of, and after what the host knew of when it
was asked for. Waits pass on what the other line knew.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strategist_runtime.parallel import activation_offload
from strategist_runtime.parallel.copy_streams import STREAMS
from strategist_runtime.simulate import host_memory as places
from strategist_runtime.simulate.host_memory import creating_part

HOST = 0
"""The line of the host."""

Known = dict[int, int]
"""Of each line, how many of its operations are over."""


@dataclass(eq=False)
class StreamOrder:
    """The streams of one device. ``kept`` receives the streams that must finish before a tensor's freed memory is reused."""

    known: list[Known] = field(default_factory=lambda: [{}])
    kept: Callable[[Tensor, int], None] = lambda tensor, line: None
    synchronized: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.computing = self.current = Stream(self)

    def line(self) -> int:
        self.known.append({})
        return len(self.known) - 1

    def begin(self, line: int) -> int:
        """An operation begins on a line; its number there."""
        if line != HOST:
            self.learn(line, self.known[HOST])
        number = self.known[line].get(line, 0) + 1
        self.known[line][line] = number
        return number

    def learn(self, line: int, known: Known) -> None:
        """What a line does from here on comes after all of ``known``."""
        own = self.known[line]
        for other, number in known.items():
            own[other] = max(own.get(other, 0), number)
        if line == HOST:
            self.synchronized()

    def wait_for_all(self) -> None:
        """The host waits until the device has done all that was asked of it."""
        for known in self.known[HOST + 1 :]:
            self.learn(HOST, known)

    def over(self, line: int, number: int, *, to: int) -> bool:
        """Whether operation ``number`` of ``line`` is over for what comes next on line ``to``."""
        return self.known[to].get(line, 0) >= number or self.known[HOST].get(line, 0) >= number


class Stream:
    """Has the methods of torch's streams that the runtime and FSDP2 call."""

    def __init__(self, order: StreamOrder) -> None:
        self.order, self.line = order, order.line()

    def wait_stream(self, other: "Stream") -> None:
        self.order.learn(self.line, self.order.known[other.line])

    def wait_event(self, event: "Event") -> None:
        self.order.learn(self.line, event.known)

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event(self.order)
        event.record(self)
        return event

    def synchronize(self) -> None:
        self.order.learn(HOST, self.order.known[self.line])


class Event:
    """What was over when it was recorded."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order
        self.known: Known = {}

    def record(self, stream: Stream | None = None) -> None:
        line = (stream or self.order.current).line
        self.order.learn(line, self.order.known[HOST])
        self.known = dict(self.order.known[line])

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self.order.current).wait_event(self)

    def synchronize(self) -> None:
        self.order.learn(HOST, self.known)

    def query(self) -> bool:
        """Nothing waits in vain."""
        return True


class SimulatedStreams:
    """Has the methods of ``parallel.streams.Cuda``."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order

    def stream(self) -> Stream:
        return Stream(self.order)

    def current(self) -> Stream:
        return self.order.current

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.order.current = self.order.current, stream
        try:
            yield
        finally:
            self.order.current = before

    def keep(self, tensor: Tensor, stream: Stream) -> None:
        self.order.kept(tensor, stream.line)

    def host_memory(self, like: Tensor) -> Tensor:
        with creating_part(places.HOST):
            return torch.empty_like(like)

    def copied(self, tensor: Tensor) -> Tensor:
        with creating_part("activations"):
            return tensor.clone()


def simulate_streams() -> StreamOrder:
    """Has what travels between device and host exist in both, as with a GPU, on streams that FSDP2 enters too. Not to be undone."""
    order = StreamOrder()
    device = SimulatedStreams(order)
    STREAMS["cpu"] = lambda _device: device
    replaced: dict[str, Any] = {
        "Stream": lambda priority=-1: device.stream(), "Event": lambda: Event(order),
        "current_stream": lambda _device=None: order.current, "stream": device.on,
    }  # fmt: skip
    for name, by in replaced.items():
        setattr(torch.cpu, name, by)
    activation_offload.LEAST_BYTES["cpu"] = activation_offload.LEAST_BYTES["cuda"]
    return order
