"""Freed memory that other streams still read: it is reused once the host knows that they have finished.

CUDA's caching allocator records an event on each of these streams and checks it at each allocation; until then the block is not
reused (``insert_events``, ``process_events`` in c10/cuda/CUDACachingAllocator.cpp). The host is assumed to run ahead of the
device as far as its waits allow, so reserved memory is an upper bound.
"""

from dataclasses import dataclass, field

from torch import Tensor

from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.measure import memory
from strategist_runtime.simulate.timeline import Timeline
from strategist_runtime.simulate.virtual_streams import Clock, StreamOrder


@dataclass(eq=False)
class StreamReaders:
    """The streams that read each storage, by the storage's key. ``pending_frees``: free events, and what must finish before the
    memory is reused.
    """

    order: StreamOrder
    timeline: Timeline = field(default_factory=Timeline)
    pending_frees: list[tuple[int, Clock]] = field(default_factory=list)
    reader_lines: dict[int, set[int]] = field(default_factory=dict)
    allocation_lines: dict[int, int] = field(default_factory=dict)

    def follow(self, timeline: Timeline) -> None:
        """Makes later frees belong to ``timeline``."""
        self.timeline = timeline
        self.order.on_record_stream, self.order.on_synchronize = self.record_stream, self.synchronized

    def allocated(self, key: int) -> None:
        """Records that a storage was allocated on the current stream."""
        self.allocation_lines[key] = self.order.current.line

    def record_stream(self, tensor: Tensor, line: int) -> None:
        """Records that a stream reads a tensor."""
        for part in memory.inner_tensors(tensor):
            key = key_of(part.untyped_storage())
            if self.allocation_lines.get(key) != line:
                self.reader_lines.setdefault(key, set()).add(line)

    def freed(self, key: int) -> None:
        """Records that the last event of the timeline freed a storage."""
        self.allocation_lines.pop(key, None)
        reader_lines = self.reader_lines.pop(key, None)
        if reader_lines:
            self.pending_frees.append((len(self.timeline.events) - 1, {line: self.order.begin(line) for line in reader_lines}))

    def synchronized(self) -> None:
        """Called when the host has waited: sets the delay of frees whose readers have finished."""
        clock, unfinished = self.order.clocks[0], []
        for index, needed in self.pending_frees:
            if all(clock.get(line, 0) >= number for line, number in needed.items()):
                self.timeline.delays[index] = len(self.timeline.events) - 1 - index
            else:
                unfinished.append((index, needed))
        self.pending_frees = unfinished

    def end(self) -> None:
        """Ends the step, in which the host reads results: all readers have finished."""
        for index, _ in self.pending_frees:
            self.timeline.delays[index] = len(self.timeline.events) - 1 - index
        self.pending_frees = []
