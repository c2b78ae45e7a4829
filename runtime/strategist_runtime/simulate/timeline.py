"""Allocations and frees of a step, event by event, and the memory in use at each of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from strategist.contract.rank_observation import Moment


@dataclass(frozen=True, kw_only=True)
class StorageOrigin:
    """Origin of a storage: its part of memory, and the module that owns it or whose pass made it."""

    part: str
    module: str


@dataclass(frozen=True, kw_only=True)
class MemorySnapshot:
    """Memory at the peak of a moment: live bytes by part and by module."""

    parts: Mapping[str, int]
    modules: Mapping[str, int]

    @property
    def memory_bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(kw_only=True)
class Timeline:
    """Allocations and frees of a step; storages are numbered in the order of their first appearance.

    ``births``: origins, by storage number. ``events``: storage number, change of its size in bytes, and moment. The first
    ``begin`` events are of storages that existed before the step. ``streams``: stream by index of the event, if it is not the
    compute stream. ``delays``: by index of an event that frees a storage that another stream reads, the number of further events
    until that stream has surely finished.
    """

    births: list[StorageOrigin] = field(default_factory=list)
    events: list[tuple[int, int, Moment]] = field(default_factory=list)
    begin: int = 0
    streams: dict[int, int] = field(default_factory=dict)
    delays: dict[int, int] = field(default_factory=dict)

    @property
    def peak_memory_bytes(self) -> int:
        return max(accumulate(change for _, change, _ in self.events), default=0)

    def instants(self) -> dict[Moment, MemorySnapshot]:
        """The memory peak of each moment; the first of equal ones."""
        moments = {event: moment for moment, event in self._peak_events().items()}
        parts: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        found = {}
        for index, (number, change, _) in enumerate(self.events):
            birth = self.births[number]
            parts[birth.part] += change
            modules[birth.module] += change
            if index in moments:
                module_bytes = {name: size for name, size in modules.items() if size}
                found[moments[index]] = MemorySnapshot(parts=dict(parts), modules=module_bytes)
        return found

    def _peak_events(self) -> dict[Moment, int]:
        """The index of the event at the peak, by moment."""
        peaks: dict[Moment, tuple[int, int]] = {}
        live_bytes = 0
        for index, (_, change, moment) in enumerate(self.events):
            live_bytes += change
            if moment not in peaks or live_bytes > peaks[moment][0]:
                peaks[moment] = live_bytes, index
        return {moment: index for moment, (_, index) in peaks.items()}
