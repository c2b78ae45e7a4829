"""Data races between streams: reads before a write has finished, writes before a read has finished, memory that is reused too
early.

``torch.cuda._sanitizer`` checks the same on a device, except reuse: CUDA's caching allocator gives a freed block to the next
allocation on the stream of its first one, and another stream may still use the block, unless that use was recorded
(``record_stream``).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from strategist_runtime.compat.dispatch import accesses
from strategist_runtime.compat.dtensor import key_of
from strategist_runtime.measure import memory
from strategist_runtime.simulate.virtual_streams import HOST_LINE, StreamOrder

Access = tuple[int, int, str]
"""An access: its line (stream or host), the number of the operation on the line, and the operation's name."""


@dataclass(eq=False)
class StorageAccesses:
    """Accesses to a storage: its creation, the last write, and the reads since then, by line. ``recorded_lines``: lines that
    its free waits for.
    """

    allocation_line: int
    written: Access
    read: dict[int, Access] = field(default_factory=dict)
    recorded_lines: set[int] = field(default_factory=set)

    def all_accesses(self) -> Iterator[Access]:
        yield self.written
        yield from self.read.values()


@dataclass(eq=False)
class Races:
    """Checks each operation when it is launched; ``found`` are the possible races, each pair of operations once."""

    order: StreamOrder
    found: dict[str, None] = field(default_factory=dict)
    _accesses: dict[int, StorageAccesses] = field(default_factory=dict)
    _freed: defaultdict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))

    def record(
        self, operator: Any, arguments: Sequence[Any], options: Mapping[str, Any], result: Any, *, line: int, waits: bool = False
    ) -> None:
        """Records an operation on a line: it reads its arguments, and writes those that it changes and its results. ``waits``:
        the host waits for it.
        """
        access = (line, self.order.begin(line), str(operator))
        read, written = set[int](), set[int]()
        for value, changed in accesses(operator, arguments, options):
            (written if changed else read).update(_keys(value))
        created = _keys(result) - _keys([*arguments, *options.values()])
        for key in read - written:
            self._read(key, access)
        if created:
            self._reuse(line)
        for key in written | created:
            self._write(key, access)
        if waits:
            self.order.wait_for(HOST_LINE, self.order.clocks[line])

    def make(self, key: int, line: int) -> None:
        """Records the allocation of a storage's memory."""
        self._reuse(line)
        self._accesses[key] = StorageAccesses(
            allocation_line=line, written=(line, self.order.clocks[line].get(line, 0), "its allocation")
        )

    def forget(self, key: int) -> None:
        """Records the free of host memory; no check is needed, since torch's pinned memory waits for its copies."""
        self._accesses.pop(key, None)

    def record_stream(self, tensor: Tensor, line: int) -> None:
        """Records that the free of a tensor's memory waits for a line (``record_stream``)."""
        for key in _keys(tensor):
            if key in self._accesses:
                self._accesses[key].recorded_lines.add(line)

    def free(self, key: int) -> None:
        """Records the free of a storage, with the accesses of other streams that its free does not wait for."""
        storage = self._accesses.pop(key, None)
        if storage is None:
            return
        self._freed[storage.allocation_line] += [
            access
            for access in storage.all_accesses()
            if access[0] not in (HOST_LINE, storage.allocation_line, *storage.recorded_lines)
        ]

    def _reuse(self, allocation_line: int) -> None:
        """Checks an allocation on a line against all memory that was freed there before."""
        for line, number, name in self._freed.pop(allocation_line, ()):
            if not self.order.has_finished(line, number, to=allocation_line):
                self._report(f"{name} on stream {line} may still use memory that stream {allocation_line} makes something else of")

    def _read(self, key: int, access: Access) -> None:
        storage = self._accesses.get(key)
        if storage is None:
            self._accesses[key] = StorageAccesses(allocation_line=access[0], written=access)
            return
        self._check_order(storage.written, access, "is read by")
        storage.read[access[0]] = access

    def _write(self, key: int, access: Access) -> None:
        storage = self._accesses.get(key)
        if storage is None:
            self._accesses[key] = StorageAccesses(allocation_line=access[0], written=access)
            return
        self._check_order(storage.written, access, "is written over by")
        for reader in storage.read.values():
            self._check_order(reader, access, "is still reading what is written by")
        storage.written, storage.read = access, {}

    def _check_order(self, before: Access, access: Access, relation: str) -> None:
        line, number, name = before
        if line != access[0] and not self.order.has_finished(line, number, to=access[0]):
            self._report(f"{name} on {_line(line)} {relation} {access[2]} on {_line(access[0])}, which does not wait for it")

    def _report(self, text: str) -> None:
        self.found[text] = None


def _line(number: int) -> str:
    return "the host" if number == HOST_LINE else f"stream {number}"


def _keys(value: Any) -> set[int]:
    if isinstance(value, Tensor):
        return {key_of(part.untyped_storage()) for part in memory.inner_tensors(value) if part.device != torch.device("meta")}
    if isinstance(value, list | tuple):
        return {key for item in value for key in _keys(item)}
    return set()
