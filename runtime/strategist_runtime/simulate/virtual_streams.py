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

Clock = dict[int, int]
"""The number of finished operations, by line."""


@dataclass(eq=False)
class StreamOrder:
    """The streams of one device.

    Callbacks: ``on_record_stream`` gets a tensor and a line that must finish before the tensor's freed memory is reused;
    ``on_synchronize`` is called after the host has waited.
    """

    clocks: list[Clock] = field(default_factory=lambda: [{}])
    on_record_stream: Callable[[Tensor, int], None] = lambda tensor, line: None
    on_synchronize: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.computing = self.current = Stream(self)

    def line(self) -> int:
        self.clocks.append({})
        return len(self.clocks) - 1

    def begin(self, line: int) -> int:
        """Begins an operation on a line; returns its number there."""
        if line != HOST_LINE:
            self.wait_for(line, self.clocks[HOST_LINE])
        number = self.clocks[line].get(line, 0) + 1
        self.clocks[line][line] = number
        return number

    def wait_for(self, line: int, clock: Clock) -> None:
        """Makes later operations of a line run after all operations in ``clock``."""
        waiting_clock = self.clocks[line]
        for other, number in clock.items():
            waiting_clock[other] = max(waiting_clock.get(other, 0), number)
        if line == HOST_LINE:
            self.on_synchronize()

    def wait_for_all(self) -> None:
        """Makes the host wait for all launched operations of the device."""
        for clock in self.clocks[HOST_LINE + 1 :]:
            self.wait_for(HOST_LINE, clock)

    def has_finished(self, line: int, number: int, *, to: int) -> bool:
        """Whether operation ``number`` of ``line`` has finished before the next operation on line ``to``."""
        return self.clocks[to].get(line, 0) >= number or self.clocks[HOST_LINE].get(line, 0) >= number


class Stream:
    """Interface of torch's streams, as far as the runtime and FSDP2 use it."""

    def __init__(self, order: StreamOrder) -> None:
        self.order, self.line = order, order.line()

    def wait_stream(self, other: "Stream") -> None:
        self.order.wait_for(self.line, self.order.clocks[other.line])

    def wait_event(self, event: "Event") -> None:
        self.order.wait_for(self.line, event.clock)

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event(self.order)
        event.record(self)
        return event

    def synchronize(self) -> None:
        self.order.wait_for(HOST_LINE, self.order.clocks[self.line])


class Event:
    """The operations that had finished when the event was recorded."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order
        self.clock: Clock = {}

    def record(self, stream: Stream | None = None) -> None:
        line = (stream or self.order.current).line
        self.order.wait_for(line, self.order.clocks[HOST_LINE])
        self.clock = dict(self.order.clocks[line])

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self.order.current).wait_event(self)

    def synchronize(self) -> None:
        self.order.wait_for(HOST_LINE, self.clock)

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

    def record_stream(self, tensor: Tensor, stream: Stream) -> None:
        self.order.on_record_stream(tensor, stream.line)

    def host_memory(self, like: Tensor) -> Tensor:
        with creating_part(host_memory.HOST):
            return torch.empty_like(like)

    def to_device(self, tensor: Tensor) -> Tensor:
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
