"""An in-memory file system whose calls have several effects one after another; a power loss keeps only what is on disk."""

import errno
import os
import random
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path("/save")
Effects = Generator[None, None, Any]
Tree = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass
class File:
    """``disk`` is the content after a power loss; None if the file need not exist."""

    data: str = ""
    disk: str | None = None


@dataclass
class Folder:
    """Its entries, the entries on disk, and the changes that are not yet durable."""

    entries: dict[str, Any] = field(default_factory=dict)
    disk: dict[str, Any] = field(default_factory=dict)
    log: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)

    def change(self, act: Callable[[dict[str, Any]], None]) -> None:
        act(self.entries)
        self.log.append(act)

    def sync(self) -> None:
        self.disk, self.log = dict(self.entries), []


class Memory:
    """The file system; a call is a generator of its effects."""

    def __init__(self) -> None:
        self.root = Folder()

    def make(self, folder: Path) -> Effects:
        yield
        if folder != ROOT and folder.name not in self.root.entries:
            made = Folder()
            self.root.change(lambda entries: entries.setdefault(folder.name, made))

    def names(self, folder: Path) -> Effects:
        yield
        return sorted(self.root.entries)

    def sizes(self, folder: Path) -> Effects:
        yield
        return {name: len(file.data) for name, file in sorted(self._folder(folder).entries.items())}

    def write(self, path: Path, text: str) -> Effects:
        yield
        folder = self._folder(path.parent)
        file = folder.entries.get(path.name)
        if file is None:
            file = File()
            folder.change(lambda entries: entries.update({path.name: file}))
        file.data = ""
        for end in (len(text) // 2, len(text)):
            yield
            file.data = text[:end]
        yield
        file.disk = file.data

    def sync(self, folder: Path) -> Effects:
        yield
        (self.root if folder == ROOT else self._folder(folder)).sync()

    def rename(self, path: Path, target: Path) -> Effects:
        yield
        self._folder(path)
        there = self.root.entries.get(target.name)
        if there is not None and there.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self.root.change(lambda entries: entries.update({target.name: entries.pop(path.name)}) if path.name in entries else None)

    def exists(self, path: Path) -> Effects:
        yield
        return path.name in self.root.entries

    def remove(self, folder: Path) -> Effects:
        yield
        there = self.root.entries.get(folder.name)
        if there is None:
            return
        for name in list(there.entries):
            there.change(lambda entries, name=name: entries.pop(name, None))
            yield
        if there.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self.root.change(lambda entries: entries.pop(folder.name, None))

    def _folder(self, folder: Path) -> Folder:
        if folder.name not in self.root.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        found: Folder = self.root.entries[folder.name]
        return found

    def lose_power(self, chances: random.Random) -> None:
        """Keeps what is on disk; any part of the rest may be lost."""

        def surviving(folder: Folder) -> dict[str, Any]:
            entries = dict(folder.disk)
            for act in folder.log:
                if chances.random() < 0.5:
                    act(entries)
            return entries

        def content(file: File) -> File:
            torn = file.data[: chances.randrange(len(file.data) + 1)]
            data = chances.choice([torn, file.data, file.disk or ""]) if file.data != file.disk else file.data
            return File(data, data)

        names = surviving(self.root)
        kept = {name: {entry: content(file) for entry, file in surviving(folder).items()} for name, folder in names.items()}
        folders = {name: Folder(dict(files), dict(files)) for name, files in kept.items()}
        self.root = Folder(dict(folders), dict(folders))

    def tree(self, *, files: bool = True) -> Tree:
        """The content as a value; without ``files`` only the names of folders."""
        found = sorted(self.root.entries.items())
        return tuple((name, tuple((entry, file.data) for entry, file in folder.entries.items() if files)) for name, folder in found)


def written_to_disk(tree: Tree, place: Path) -> Path:
    """Writes the same content to a real folder, for production readers."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, files in tree:
        (place / name).mkdir()
        for entry, text in files:
            (place / name / entry).write_text(text)
    return place
