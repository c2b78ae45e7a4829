"""The protocol of saving and resuming a checkpoint: what each rank does, in which order. It does not import torch, so tests run
this code under any schedule, any death of a rank and any disk failure.

Rank 0 owns the folder: no other rank makes, renames or removes a checkpoint. A **session** is the life of one set of ranks.

Begin of a session:
    The owner takes the folder's lock, removes the unfinished saves of earlier sessions (each is renamed first, so that a late
    rename cannot publish it half deleted), finds the newest complete checkpoint and draws a token. It sends both to all ranks. No
    later clean-up follows.

A save:
    1. The owner makes ``step-N.<token>.partial``. All ranks agree that it exists and that they have something to write; no rank
       opens it earlier.
    2. Each rank writes its files and syncs them (fsync of the files, then of the folder). All ranks agree that all are on disk.
    3. The owner writes and syncs the description, renames the folder to ``step-N`` and syncs the rename: the checkpoint is
       published. Then it removes superseded checkpoints, after renaming each to a partial one.
    4. All ranks learn whether the checkpoint was published.

A rank that fails at a step reports the reason at the next agreement: the save then fails on all ranks, its files are removed, and
training continues. A rank that dies ends the session, since its peers can no longer agree. Readers see only published checkpoints,
and use the newest one whose files have the sizes in its description.

The token protects against late writes: a rank of an earlier session may still write, on a disconnected host or to a slow disk. It
knows only the folder of its own session, so it never writes into a folder that a later session publishes.
"""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from strategist.contract.checkpoint import DESCRIPTION, PARTIAL, name_of
from strategist.errors import FileError, StrategistError

T = TypeVar("T")
OWNER = 0
LOCK = ".lock"
ASIDE = "old-"
"""In the name of a folder that is being removed; no session publishes it."""
LOCK_SECONDS, LOCK_POLL_SECONDS = 10.0, 0.1

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True, kw_only=True)
class CollectiveStep:
    """A step that all ranks take together: each gives a value and gets the values of all ranks, in rank order."""

    value: Any


Steps = Generator[CollectiveStep | Callable[[], Any], Any, T]
"""Steps of one rank with a result of type T; each is a call on the storage, or a ``CollectiveStep``."""


class Storage(Protocol):
    """File system operations of the protocol. Each may raise OSError, may be repeated, and may be the last before a rank dies."""

    def lock(self, folder: Path) -> None:
        """Locks the folder until the process ends or releases it. Raises FileError while another session holds the lock."""

    def make(self, folder: Path) -> None:
        """Makes a folder and its parents; it may exist."""

    def names(self, folder: Path) -> Sequence[str]:
        """Names of the entries of a folder."""
        ...

    def sizes(self, folder: Path) -> Mapping[str, int]:
        """Size in bytes of each file in a folder."""
        ...

    def write(self, path: Path, text: str) -> None:
        """Writes the whole file; it is on disk when this returns."""

    def sync(self, folder: Path) -> None:
        """Syncs the entries of a folder to disk."""

    def rename(self, path: Path, target: Path) -> None:
        """Renames a folder atomically; ``target`` must not exist."""

    def exists(self, path: Path) -> bool: ...

    def remove(self, folder: Path) -> None:
        """Removes a folder with its content; it may be missing."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One rank of a session that saves in ``folder``; ``token`` is the owner's once the session has begun."""

    storage: Storage
    folder: Path
    owner: bool
    token: str

    def begin(self, find: Callable[[], T]) -> Steps[tuple["Rank", T]]:
        """Begins a session. Returns the rank with the owner's token, and the owner's result of ``find``, which looks for a
        checkpoint.

        Raises:
            StrategistError: the folder cannot be written, another session saves there, or ``find`` raised it. All ranks raise it.
        """
        token, found = yield from self._owner_result(self._open_folder(find))
        return replace(self, token=token), found

    def find_on_owner(self, find: Callable[[], T]) -> Steps[T]:
        """The owner's result of ``find``, for a session that does not save.

        Raises:
            StrategistError: ``find`` raised it. All ranks raise it.
        """
        _, found = yield from self._owner_result(_call(find))
        return found

    def _owner_result(self, steps: Steps[T]) -> Steps[tuple[str, T]]:
        """The owner's token, and the result of its steps, on all ranks."""
        problem, found = (yield from _error_and_result(steps)) if self.owner else ("", None)
        problem, token, found = (yield CollectiveStep(value=(problem, self.token, found)))[OWNER]
        if problem:
            raise StrategistError(problem)
        return token, cast(T, found)

    def _open_folder(self, find: Callable[[], T]) -> Steps[T]:
        try:
            yield partial(self.storage.make, self.folder)
            yield partial(self.storage.lock, self.folder)
            names = yield partial(self.storage.names, self.folder)
        except OSError as error:
            raise FileError(self.folder, f"takes no checkpoints: {in_one_line(error)}; choose another folder") from None
        for name in names:
            if name.startswith("step-") and name.endswith(PARTIAL):
                path = self.folder / name
                yield from _error_and_result(_call(partial(self.storage.remove, path)) if ASIDE in name else self._remove(path))
        return (yield from _call(find))

    def save(self, step: int, problem: str, content: "Content") -> Steps[str]:
        """Saves the state after ``step`` steps. Returns why it failed, empty if it is published; the same on all ranks.

        ``problem`` is the reason why this rank has nothing to write, empty if it has.
        """
        final = self.folder / name_of(step)
        draft = self._partial(final)
        if self.owner and not problem:
            problem, _ = yield from _error_and_result(_call(partial(self.storage.make, draft)))
        if problem := _first_problem((yield CollectiveStep(value=problem))):
            return problem
        problem, _ = yield from _error_and_result(self._write_files(draft, content))
        problem = _first_problem((yield CollectiveStep(value=problem)))
        if self.owner:
            problem = yield from self._publish_or_remove(draft, final, problem, content)
        problem = (yield CollectiveStep(value=problem))[OWNER]
        if self.owner and not problem:
            yield from _error_and_result(self._remove_superseded(content))
        return problem

    def _write_files(self, draft: Path, content: "Content") -> Steps[None]:
        yield from content.write(draft)
        yield partial(self.storage.sync, draft)

    def _publish_or_remove(self, draft: Path, final: Path, problem: str, content: "Content") -> Steps[str]:
        """Publishes the folder if all ranks have written, otherwise removes it; returns the problem, empty if published."""
        if not problem:
            problem, _ = yield from _error_and_result(self._publish(draft, final, content))
        if problem:
            yield from _error_and_result(_call(partial(self.storage.remove, draft)))
        return problem

    def _publish(self, draft: Path, final: Path, content: "Content") -> Steps[None]:
        description = content.description((yield partial(self.storage.sizes, draft)))
        yield partial(self.storage.write, draft / DESCRIPTION, description)
        yield partial(self.storage.sync, draft)
        if (yield partial(self.storage.exists, final)):  # damaged, or published by a session that lost its connection
            yield from self._remove(final)
        yield partial(self.storage.rename, draft, final)
        yield partial(self.storage.sync, self.folder)

    def _remove_superseded(self, content: "Content") -> Steps[None]:
        for path in (yield content.superseded):
            yield from self._remove(path)

    def _remove(self, path: Path) -> Steps[None]:
        """Removes a checkpoint or an unfinished save: renames it first, then deletes its files. So a checkpoint stops being one at
        once, and the owner of an earlier session cannot publish a folder that is half deleted.
        """
        aside = self._partial(path, ASIDE)
        yield partial(self.storage.rename, path, aside)
        yield partial(self.storage.remove, aside)

    def _partial(self, final: Path, kind: str = "") -> Path:
        return final.with_name(f"{final.name}.{kind}{self.token}{PARTIAL}")


class Content(Protocol):
    """The content of one save."""

    def write(self, folder: Path) -> Steps[None]:
        """Writes this rank's files to disk."""
        ...

    def description(self, files: Mapping[str, int]) -> str:
        """The text of the description, given the sizes of all files."""
        ...

    def superseded(self) -> Sequence[Path]:
        """The checkpoints to remove once this one is published."""
        ...


def run_protocol(steps: Steps[T], agree: Callable[[Any], Sequence[Any]]) -> T:
    """Runs all steps in order and returns their result; ``agree`` exchanges a value with all ranks."""
    advance: Callable[[], Any] = partial(next, steps)
    while True:
        try:
            step = advance()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            advance = partial(steps.send, agree(step.value) if isinstance(step, CollectiveStep) else step())
        except Exception as error:  # the steps decide how to handle it
            advance = partial(steps.throw, error)


def _call(step: Callable[[], T]) -> Steps[T]:
    result: T = yield step
    return result


def _error_and_result(steps: Steps[T]) -> Steps[tuple[str, T | None]]:
    """The error of the steps in one line, empty if there is none; and their result."""
    try:
        return "", (yield from steps)
    except Exception as error:  # any exception: peers wait for this rank at the next agreement
        return in_one_line(error), None


def in_one_line(error: Exception) -> str:
    """An error's message in one line, with its type unless that is OSError or StrategistError."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError | StrategistError) else f"{type(error).__name__}: {text}"


def _first_problem(problems: Sequence[str]) -> str:
    """The problem of the first rank that has one; empty if none has."""
    return next((f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem), "")


class Disk:
    """A file system that all ranks share. ``lock`` waits up to ``lock_timeout_seconds`` for the previous session's ranks to end."""

    def __init__(self, lock_timeout_seconds: float = LOCK_SECONDS) -> None:
        self._lock_timeout_seconds = lock_timeout_seconds
        self._lock: int | None = None

    def lock(self, folder: Path) -> None:
        """See :class:`Storage`; without effect on a file system without locks, where tokens keep sessions apart."""
        if self._lock is not None:
            return
        descriptor, deadline = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644), time.monotonic() + self._lock_timeout_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise FileError(folder, "another training saves there; wait for its end, or name another folder") from None
                time.sleep(LOCK_POLL_SECONDS)
                continue
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
            self._lock = descriptor
            return

    def unlock(self) -> None:
        """Releases the lock; the end of the process does so as well."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def names(self, folder: Path) -> Sequence[str]:
        return sorted(os.listdir(folder))

    def sizes(self, folder: Path) -> Mapping[str, int]:
        return {item.name: item.stat().st_size for item in sorted(folder.iterdir())}

    def write(self, path: Path, text: str) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        path.rename(target)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(folder)  # raises the reason
