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
    """Memory peak of a moment: live bytes by part and by module."""

    parts: Mapping[str, int]
    modules: Mapping[str, int]

    @property
    def memory_bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(kw_only=True)
class Timeline:
    """Storages by number, in the order in which they were seen. ``events``: the storage, by how many bytes it grew or shrank, and
    the moment. The first ``begin`` of them are of what was there before the step. ``streams``: by an event's index its stream,
    where it isn't the one that computes. ``delays``: by the index of an event that frees what another stream reads, after how many
    more events that is surely over."""

    births: list[StorageOrigin] = field(default_factory=list)
    events: list[tuple[int, int, Moment]] = field(default_factory=list)
    begin: int = 0
    streams: dict[int, int] = field(default_factory=dict)
    delays: dict[int, int] = field(default_factory=dict)

    @property
    def peak_memory_bytes(self) -> int:
        return max(accumulate(change for _, change, _ in self.events), default=0)

    def instants(self) -> dict[Moment, MemorySnapshot]:
        """Each moment's fullest instant, of equal ones the first."""
        fullest = {event: moment for moment, event in self._fullest().items()}
        parts: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        found = {}
        for index, (number, change, _) in enumerate(self.events):
            birth = self.births[number]
            parts[birth.part] += change
            modules[birth.module] += change
            if index in fullest:
                held = {name: size for name, size in modules.items() if size}
                found[fullest[index]] = MemorySnapshot(parts=dict(parts), modules=held)
        return found

    def _fullest(self) -> dict[Moment, int]:
        """By moment the index of the event after which the most lived."""
        most: dict[Moment, tuple[int, int]] = {}
        now = 0
        for index, (_, change, moment) in enumerate(self.events):
            now += change
            if moment not in most or now > most[moment][0]:
                most[moment] = now, index
        return {moment: index for moment, (_, index) in most.items()}
