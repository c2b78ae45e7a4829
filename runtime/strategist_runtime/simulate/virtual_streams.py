"""Virtual CUDA streams and events: the order between operations, without a device.

Each stream, and the host, is a line of operations in launch order. A line knows how many operations of each other line have
finished (vector clocks, Lamport 1978, Fidge 1988): an operation runs after everything that its line knows of, and that the host
knew of at the launch. A wait passes on the knowledge of the other line.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strategist_runtime.parallel import activation_offload
from strategist_runtime.parallel.copy_streams import STREAMS
from strategist_runtime.simulate import host_memory
from strategist_runtime.simulate.host_memory import creating_part

HOST_LINE = 0
"""The line of the host."""

Known = dict[int, int]
"""The number of finished operations, by line."""


@dataclass(eq=False)
class StreamOrder:
    """The streams of one device.

    Callbacks: ``on_record_stream`` gets a tensor and a line that must finish before the tensor's freed memory is reused;
    ``on_synchronize`` is called after the host has waited.
    """

    known: list[Known] = field(default_factory=lambda: [{}])
    on_record_stream: Callable[[Tensor, int], None] = lambda tensor, line: None
    on_synchronize: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.computing = self.current = Stream(self)

    def line(self) -> int:
        self.known.append({})
        return len(self.known) - 1

    def begin(self, line: int) -> int:
        """Begins an operation on a line; returns its number there."""
        if line != HOST_LINE:
            self.learn(line, self.known[HOST_LINE])
        number = self.known[line].get(line, 0) + 1
        self.known[line][line] = number
        return number

    def learn(self, line: int, known: Known) -> None:
        """Makes later operations of a line run after all operations in ``known``."""
        clock = self.known[line]
        for other, number in known.items():
            clock[other] = max(clock.get(other, 0), number)
        if line == HOST_LINE:
            self.on_synchronize()

    def wait_for_all(self) -> None:
        """Makes the host wait for all launched operations of the device."""
        for known in self.known[HOST_LINE + 1 :]:
            self.learn(HOST_LINE, known)

    def has_finished(self, line: int, number: int, *, to: int) -> bool:
        """Whether operation ``number`` of ``line`` has finished before the next operation on line ``to``."""
        return self.known[to].get(line, 0) >= number or self.known[HOST_LINE].get(line, 0) >= number


class Stream:
    """Interface of torch's streams, as far as the runtime and FSDP2 use it."""

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
        self.order.learn(HOST_LINE, self.order.known[self.line])


class Event:
    """The operations that had finished when the event was recorded."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order
        self.known: Known = {}

    def record(self, stream: Stream | None = None) -> None:
        line = (stream or self.order.current).line
        self.order.learn(line, self.order.known[HOST_LINE])
        self.known = dict(self.order.known[line])

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self.order.current).wait_event(self)

    def synchronize(self) -> None:
        self.order.learn(HOST_LINE, self.known)

    def query(self) -> bool:
        """Always True: events have always finished."""
        return True


class SimulatedStreams:
    """Same interface as ``parallel.copy_streams.Cuda``."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order

    def stream(self) -> Stream:
        return Stream(self.order)

    def current(self) -> Stream:
        return self.order.current

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        previous, self.order.current = self.order.current, stream
        try:
            yield
        finally:
            self.order.current = previous

    def keep(self, tensor: Tensor, stream: Stream) -> None:
        self.order.on_record_stream(tensor, stream.line)

    def host_memory(self, like: Tensor) -> Tensor:
        with creating_part(host_memory.HOST):
            return torch.empty_like(like)

    def copied(self, tensor: Tensor) -> Tensor:
        with creating_part("activations"):
            return tensor.clone()


def simulate_streams() -> StreamOrder:
    """Makes copies between device and host real copies, as with a GPU, on virtual streams that FSDP2 uses too. Cannot be undone."""
    order = StreamOrder()
    device = SimulatedStreams(order)
    STREAMS["cpu"] = lambda _device: device
    replaced: dict[str, Any] = {
        "Stream": lambda priority=-1: device.stream(), "Event": lambda: Event(order),
        "current_stream": lambda _device=None: order.current, "stream": device.on,
    }  # fmt: skip
    for name, replacement in replaced.items():
        setattr(torch.cpu, name, replacement)
    activation_offload.MIN_BYTES["cpu"] = activation_offload.MIN_BYTES["cuda"]
    return order
