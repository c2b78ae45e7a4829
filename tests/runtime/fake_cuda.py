"""Streams and events of a fake CUDA device: calls are logged, and a clock advances with launched work."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

DEVICE = torch.device("cuda", 0)


@dataclass(eq=False)
class FakeCuda:
    """``log`` has the calls in order; ``seconds`` is the device's clock."""

    log: list[tuple[str, ...]] = field(default_factory=list)
    seconds: float = 0.0
    streams: int = 0
    events: int = 0

    def __post_init__(self) -> None:
        self.current = FakeStream(self)

    def install(self, patch: pytest.MonkeyPatch) -> "FakeCuda":
        patch.setattr(torch.cuda, "current_stream", lambda _device=None: self.current)
        patch.setattr(torch.cuda, "Stream", lambda _device=None: FakeStream(self))
        patch.setattr(torch.cuda, "Event", lambda **_: FakeEvent(self))
        patch.setattr(torch.cuda, "stream", self.on)
        patch.setattr(torch.cuda, "synchronize", lambda _device=None: self.log.append(("wait for all",)))
        return self

    @contextmanager
    def on(self, stream: "FakeStream") -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


class FakeStream:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.name = cuda, f"stream {cuda.streams}"
        cuda.streams += 1

    def record_event(self) -> "FakeEvent":
        event = FakeEvent(self.cuda)
        event.record(self)
        return event

    def wait_stream(self, other: "FakeStream") -> None:
        self.cuda.log.append((self.name, "waits for", other.name))


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.name, self.at = cuda, f"event {cuda.events}", 0.0
        cuda.events += 1

    def record(self, stream: FakeStream) -> None:
        self.at = self.cuda.seconds
        self.cuda.log.append((self.name, "on", stream.name))

    def synchronize(self) -> None:
        self.cuda.log.append(("host waits for", self.name))

    def elapsed_time(self, end: "FakeEvent") -> float:
        """Time in milliseconds."""
        return 1e3 * (end.at - self.at)
