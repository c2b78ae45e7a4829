"""The timeline of a step of many equal layers, made from that of a step of fewer: its middle layers, repeated."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice

from strategist.contract.rank_observation import Moment
from strategist_runtime.simulate.timeline import Timeline

UPDATE = "optimizer"
PERSISTENT_PARTS = ("parameters", "optimizer")
"""Parts of memory that every layer has before the step."""


@dataclass(frozen=True, kw_only=True)
class MiddleLayers:
    """Traced ``layers`` of a stage in order, and the position ``first`` of the first of two equal periods in their middle; a
    period has ``period`` layers.
    """

    layers: Sequence[int]
    first: int
    period: int


class _UnevenError(Exception):
    """The middle of a step cannot be repeated."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Consecutive events of one moment. ``stage`` and ``position``: position of the layer (-1 if none); ``visit``: number of
    earlier runs of the same module.
    """

    events: Sequence[int]
    moment: Moment
    stage: int = -1
    position: int = -1
    visit: int = 0


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """First appearance of a storage: the run, and the number of storages that first appeared in the run before it."""

    run: _Run
    ordinal: int


def repeat_layers(timeline: Timeline, smaller: Timeline, middles: Sequence[MiddleLayers], times: int) -> Timeline:
    """The timeline with the first period of each stage's ``middles`` repeated ``times`` more times.

    In a copy, each storage is replaced by that of the layer at the same distance. ``smaller`` is the timeline of a step with one
    period less; the difference shows what a period adds before the step and to the update. The timeline is returned unchanged if
    a middle layer's events cannot be copied.
    """
    try:
        return _LayerRepeater(timeline, smaller, middles, times).extended
    except _UnevenError:
        return timeline


class _LayerRepeater:
    def __init__(self, timeline: Timeline, smaller: Timeline, middles: Sequence[MiddleLayers], times: int) -> None:
        self.original, self.middles, self.times = timeline, middles, times
        self.extended = Timeline(births=list(timeline.births), events=timeline.events[: timeline.begin])
        self.copies: dict[tuple[int, int], int] = {}  # by number and copy
        self.sizes: Counter[int] = Counter()
        runs = list(_runs(timeline, middles))
        self.origins = _origins(timeline, runs)
        self.storages = {
            (origin.run.stage, origin.run.position, origin.run.visit, origin.ordinal): number
            for number, origin in self.origins.items()
            if origin.run.stage >= 0
        }
        self._add_static_storages(smaller)
        for number, change, _ in self.extended.events:
            self.sizes[number] += change
        self.extended.begin = len(self.extended.events)
        repeats = self._update_repeats(smaller, runs)
        for chunk in self._chunks(runs):
            self._write(chunk, repeats)

    def _add_static_storages(self, smaller: Timeline) -> None:
        """Adds the storages that further layers have before the step."""
        additional = _static_storages(self.original)
        additional.subtract(_static_storages(smaller))
        example_storages = {
            (self.original.births[number].part, size): number for number, size, _ in self.original.events[: self.original.begin]
        }
        moment = Moment(phase="forward")
        for token, count in additional.items():
            for _ in range(max(count, 0) * self.times):
                self.extended.births.append(self.original.births[example_storages[token]])
                self.extended.events.append((len(self.extended.births) - 1, token[1], moment))

    def _chunks(self, runs: Sequence[_Run]) -> Iterator[list[_Run]]:
        """Single runs; consecutive runs of a period that is repeated form one chunk."""
        chunk: list[_Run] = []
        for run in runs:
            if chunk and (not self._is_repeated(run) or run.stage != chunk[0].stage):
                yield chunk
                chunk = []
            if self._is_repeated(run):
                chunk.append(run)
            else:
                yield [run]
        if chunk:
            yield chunk

    def _is_repeated(self, run: _Run) -> bool:
        if run.stage < 0:
            return False
        middle = self.middles[run.stage]
        return middle.first <= run.position < middle.first + middle.period

    def _write(self, chunk: Sequence[_Run], repeats: Mapping[int, int]) -> None:
        """Writes a chunk and its copies: copies for later layers come later in the forward pass, and earlier in the backward
        pass.
        """
        if not self._is_repeated(chunk[0]):
            self._write_once(chunk[0], repeats)
            return
        order = range(self.times + 1)
        for copy in order if chunk[0].moment.phase == "forward" else reversed(order):
            for run in chunk:
                for index in run.events:
                    number, change, moment = self.original.events[index]
                    self._record_event(index, self._storage_in_copy(number, run, copy), change, moment)

    def _write_once(self, run: _Run, repeats: Mapping[int, int]) -> None:
        """Writes a run that is not repeated; its events in the update are repeated block by block for further layers."""
        events = iter(run.events)
        for first_event in events:
            block = [first_event, *islice(events, repeats.get(first_event, 1) - 1)]
            for index in block:
                number, change, moment = self.original.events[index]
                self._record_event(index, self._storage_in_copy(number, run, 0), change, moment)
                if first_event not in repeats or not self._is_of_update(number):
                    for copy in self._copies_with_same_event(number, run):
                        self._record_event(index, copy, change, moment)
            if first_event in repeats:
                self._repeat_update(block)

    def _copies_with_same_event(self, number: int, run: _Run) -> list[int]:
        """The copies of a storage that get the same event, because the run belongs neither to their layer nor to a neighbouring
        one.
        """
        origin, copies = self.origins.get(number), range(1, self.times + 1)
        if origin is not None and self._is_repeated(origin.run) and not self._is_near(origin.run, run):
            return [self._copy(number, copy) for copy in copies]
        existing = (self.copies.get((number, copy)) for copy in copies) if self._is_of_update(number) else ()
        return [copy for copy in existing if copy is not None and self.sizes[copy]]

    def _is_of_update(self, number: int) -> bool:
        origin = self.origins.get(number)
        return origin is not None and origin.run.moment.phase == UPDATE

    def _repeat_update(self, block: Sequence[int]) -> None:
        """Writes the temporaries of further layers in the update."""
        for copy in range(1, self.times + 1):
            for index in block:
                number, change, moment = self.original.events[index]
                is_live = self.sizes[self.copies.get((number, copy), -1)] > 0
                if self._is_of_update(number) and (change > 0 or is_live):
                    self._record_event(index, self._copy(number, copy), change, moment)

    def _storage_in_copy(self, number: int, run: _Run, copy: int) -> int:
        """The storage in a copy of a run that corresponds to storage ``number`` in the original.

        Raises:
            _UnevenError: there is none.
        """
        origin = self.origins.get(number)
        if origin is None or not self._is_near(origin.run, run):
            if copy:
                raise _UnevenError
            return number
        middle = self.middles[run.stage]
        last = middle.first + middle.period
        shift = copy if self._is_repeated(run) else self.times if run.position >= last else 0
        position = origin.run.position + shift * middle.period
        if position < middle.first:
            target, target_copy = position, 0
        elif position < last + self.times * middle.period:
            target_copy, rest = divmod(position - middle.first, middle.period)
            target = middle.first + rest
        else:
            target, target_copy = position - self.times * middle.period, 0
        found = self.storages.get((run.stage, target, origin.run.visit, origin.ordinal))
        if found is None:
            raise _UnevenError
        return self._copy(found, target_copy)

    def _is_near(self, origin: _Run, run: _Run) -> bool:
        """Whether both runs are of layers at most a period apart, so that any layers at this distance use each other's storages
        in the same way.
        """
        return origin.stage == run.stage >= 0 and abs(origin.position - run.position) <= self.middles[run.stage].period

    def _copy(self, number: int, copy: int) -> int:
        if not copy:
            return number
        if (number, copy) not in self.copies:
            self.copies[number, copy] = len(self.extended.births)
            self.extended.births.append(self.original.births[number])
        return self.copies[number, copy]

    def _record_event(self, index: int, number: int, change: int, moment: Moment) -> None:
        self.sizes[number] += change
        if self.sizes[number] < 0:
            raise _UnevenError
        if index in self.original.streams:
            self.extended.streams[len(self.extended.events)] = self.original.streams[index]
        if index in self.original.delays:
            self.extended.delays[len(self.extended.events)] = self.original.delays[index]
        self.extended.events.append((number, change, moment))

    def _update_repeats(self, smaller: Timeline, runs: Sequence[_Run]) -> dict[int, int]:
        """Blocks of the update's events that one period adds: the number of events by the index of the first."""
        update_events = [index for run in runs if run.moment.phase == UPDATE for index in run.events]
        smaller_changes = [change for _, change, moment in smaller.events[smaller.begin :] if moment.phase == UPDATE]
        matcher = SequenceMatcher(
            None, smaller_changes, [self.original.events[index][1] for index in update_events], autojunk=False
        )
        return {update_events[begin]: end - begin for kind, _, _, begin, end in matcher.get_opcodes() if kind == "insert"}


def _runs(timeline: Timeline, middles: Sequence[MiddleLayers]) -> Iterator[_Run]:
    positions = {
        f"layers.{layer}": (stage, position) for stage, middle in enumerate(middles) for position, layer in enumerate(middle.layers)
    }
    visits: Counter[str] = Counter()
    events: list[int] = []
    for index in range(timeline.begin, len(timeline.events)):
        events.append(index)
        moment = timeline.events[index][2]
        if index + 1 == len(timeline.events) or timeline.events[index + 1][2] != moment:
            stage, position = positions.get(moment.module, (-1, -1))
            yield _Run(events=events, moment=moment, stage=stage, position=position, visit=visits[moment.module])
            visits[moment.module] += 1
            events = []


def _origins(timeline: Timeline, runs: Sequence[_Run]) -> dict[int, _Origin]:
    """The origins of the storages that first appear within the step."""
    known = {number for number, _, _ in timeline.events[: timeline.begin]}
    origins: dict[int, _Origin] = {}
    for run in runs:
        ordinal = 0
        for index in run.events:
            number = timeline.events[index][0]
            if number not in known:
                known.add(number)
                origins[number] = _Origin(run=run, ordinal=ordinal)
                ordinal += 1
    return origins


def _static_storages(timeline: Timeline) -> Counter[tuple[str, int]]:
    """The number of storages of layers before the step, by part and size."""
    storages = ((timeline.births[number].part, size) for number, size, _ in timeline.events[: timeline.begin])
    return Counter(token for token in storages if token[0] in PERSISTENT_PARTS)
