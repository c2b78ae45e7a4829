"""Memory that other streams still read when it is freed: reused after the host knows that they have finished.

CUDA's caching allocator records an event on each of these streams and looks at it whenever it allocates; until then no allocation
gets the block (``insert_events``, ``process_events`` in c10/cuda/CUDACachingAllocator.cpp). The host is taken to run ahead as far
as what it waits for lets it, so what is reserved is the most that it can be.
"""

from dataclasses import dataclass, field

from torch import Tensor

from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.measure import memory
from strategist_runtime.simulate.timeline import Timeline
from strategist_runtime.simulate.virtual_streams import Known, StreamOrder


@dataclass(eq=False)
class StreamReaders:
    """Streams that read each storage, by its key. ``waiting``: events that free memory, and what must finish first."""

    order: StreamOrder
    timeline: Timeline = field(default_factory=Timeline)
    waiting: list[tuple[int, Known]] = field(default_factory=list)
    lines: dict[int, set[int]] = field(default_factory=dict)
    own: dict[int, int] = field(default_factory=dict)

    def follow(self, timeline: Timeline) -> None:
        """From now on what is freed belongs to ``timeline``."""
        self.timeline = timeline
        self.order.kept, self.order.synchronized = self.keep, self.synchronized

    def made(self, key: int) -> None:
        """A storage belongs to the current stream."""
        self.own[key] = self.order.current.line

    def keep(self, tensor: Tensor, line: int) -> None:
        """A stream reads a tensor."""
        for part in memory.inner_tensors(tensor):
            key = key_of(part.untyped_storage())
            if self.own.get(key) != line:
                self.lines.setdefault(key, set()).add(line)

    def freed(self, key: int) -> None:
        """The last event of the timeline freed a storage."""
        self.own.pop(key, None)
        lines = self.lines.pop(key, None)
        if lines:
            self.waiting.append((len(self.timeline.events) - 1, {line: self.order.begin(line) for line in lines}))

    def synchronized(self) -> None:
        """The host has learnt what is over."""
        known, still = self.order.known[0], []
        for index, needed in self.waiting:
            if all(known.get(line, 0) >= number for line, number in needed.items()):
                self.timeline.delays[index] = len(self.timeline.events) - 1 - index
            else:
                still.append((index, needed))
        self.waiting = still

    def end(self) -> None:
        """The step is over, and the host has read what it brought."""
        for index, _ in self.waiting:
            self.timeline.delays[index] = len(self.timeline.events) - 1 - index
        self.waiting = []
