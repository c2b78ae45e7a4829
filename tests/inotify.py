"""Watches a folder with inotify: every opening, change and removal of its files, by any process. Linux only."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPENED, CHANGED = 0x20, 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""linux/inotify.h: IN_OPEN; IN_MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF."""

_EVENT = struct.Struct("iIII")


class Watched:
    """Events since the watch began, as ``(folder, name)``."""

    def __init__(self, descriptor: int, folders: dict[int, Path]) -> None:
        self._descriptor, self._folders = descriptor, folders

    def events(self) -> list[tuple[str, str]]:
        found = []
        for data in self._read():
            while data:
                watch, _, _, length = _EVENT.unpack_from(data)
                name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
                found.append((str(self._folders.get(watch, "?")), name))
                data = data[_EVENT.size + length :]
        return found

    def _read(self) -> Iterator[bytes]:
        while True:
            try:
                yield os.read(self._descriptor, 2**16)
            except BlockingIOError:
                return


@contextmanager
def watched(root: Path) -> Iterator[Watched]:
    """Watches a folder and all folders in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0
    places = [root, *(path for path in root.rglob("*") if path.is_dir())]
    try:
        yield Watched(descriptor, {libc.inotify_add_watch(descriptor, bytes(place), OPENED | CHANGED): place for place in places})
    finally:
        os.close(descriptor)
