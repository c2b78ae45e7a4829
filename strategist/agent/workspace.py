"""The workspace: the one folder whose files an agent can read and write."""

import errno
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from strategist.agent import landlock
from strategist.agent.problem import RefusedError
from strategist.errors import FileError
from strategist.paths import data_dir
from strategist.profiles.huggingface import hub_cache
from strategist.profiles.local import profile_path

OWN = ".strategist"
"""The server's own folder in the workspace: what it needs for a moment, and its log. No path of an agent leads there."""

_ROOT: ContextVar[Path | None] = ContextVar("workspace", default=None)
"""The workspace of the call that runs in this thread."""

_WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree")
_READS = ("os.listdir", "os.scandir")
_DEVICES = ("/dev/null", "/dev/nvidia*", "/dev/nvidia-caps/*")
_PROGRAMS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom", "/dev/random")
"""What a program that a call starts needs to begin: a simulated rank, or the one that lists GPUs."""

_SYSTEM = ("/proc", "/sys", "/dev/null", "/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo")

T = TypeVar("T")


@dataclass(frozen=True)
class Workspace:
    """A folder, by its real path."""

    root: Path

    @classmethod
    def at(cls, folder: str | Path) -> "Workspace":
        """The workspace in a folder that exists.

        Raises:
            FileError: it does not.
        """
        root = Path(folder).expanduser().resolve()
        if not root.is_dir():
            raise FileError(folder, "is no folder; make it, or name another with --workspace")
        return cls(root)

    def inside(self, text: str) -> Path:
        """The real path that is meant, links followed.

        Raises:
            RefusedError: it lies outside.
        """
        path = self.root if "\0" in text else (self.root / text).resolve()
        own = path.is_relative_to(self.root / OWN)
        if "\0" in text or text.startswith("~") or own or not path.is_relative_to(self.root):
            raise RefusedError(
                "outside_workspace", f"{text} lies outside the workspace", "name a path inside, relative to its root"
            )
        return path

    def own(self) -> Path:
        """The server's own folder, which comes into being here."""
        folder = self.root / OWN
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def show(self, path: str | Path) -> str:
        """A path as it is named here."""
        real = Path(path)
        return real.relative_to(self.root).as_posix() if real.is_relative_to(self.root) else real.name

    @contextmanager
    def confined(self) -> Iterator[None]:
        """Whatever is called in this thread meanwhile, by way of Python, opens no file elsewhere but what strategist is made of,
        and no connection: a configuration may name other files, and what reads those knows of no workspace. See :class:`Cell`."""
        _watch()
        token, before, tempfile.tempdir = _ROOT.set(self.root), tempfile.tempdir, str(self.own())
        try:
            yield
        finally:
            tempfile.tempdir = before
            _ROOT.reset(token)


class Cell:
    """A thread that has left everything but one workspace behind, for calls of agents.

    Python says there what is refused, and the kernel, where it has Landlock, sees to it: for libraries too, for programs that a
    call starts, and for links that change while they are followed.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cell", initializer=self._enter)

    def run(self, call: Callable[[], T]) -> T:
        """What ``call`` returns or raises in there."""
        return self._thread.submit(self._confined, call).result()

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()

    def _enter(self) -> None:
        own = str(self._workspace.own())  # the kernel allows what is there
        devices = [path for pattern in _DEVICES for path in glob(pattern)]
        libraries = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        landlock.confine([*_readable(), *_PROGRAMS, *libraries], [str(self._workspace.root), own, *devices])

    def _confined(self, call: Callable[[], T]) -> T:
        with self._workspace.confined():
            return call()


def _watch() -> None:
    """Once a process: what Python asks of the system passes by here, and nothing takes that back."""
    if not _WATCHED:
        _WATCHED.append(True)
        sys.addaudithook(_check)


_WATCHED: list[bool] = []


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    root = _ROOT.get()
    if root is None:
        return
    if event == "open":
        path, mode, flags = arguments
        written = any(sign in (mode or "") for sign in "wax+") or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        _check_path(root, path, written=written)
    elif event in _READS or event in _WRITES:
        for path in arguments:
            _check_path(root, path, written=event in _WRITES)
    elif event == "sqlite3.connect":
        _check_path(root, arguments[0], written=True)
    elif event == "socket.connect":
        raise PermissionError(errno.EACCES, "an agent's call opens no connection")


def _check_path(root: Path, path: Any, *, written: bool) -> None:
    if not isinstance(path, str | bytes | os.PathLike):  # the number of an open file, or nothing
        return
    text = os.fsdecode(path)
    if text.startswith("file:"):  # as SQLite is told
        text = unquote(text.removeprefix("file:").partition("?")[0])
    if not written and ".." not in text and text.startswith(_data()):  # thousands of times a call
        return
    token = _ROOT.set(None)  # asking where a link leads must not come back here
    try:
        real = os.path.realpath(text)
        places = (str(root), os.devnull) if written else (str(root), *_readable())
    finally:
        _ROOT.reset(token)
    if not any(real == place or real.startswith(f"{place}{os.sep}") for place in places):
        raise PermissionError(errno.EACCES, "lies outside the workspace", text)


@cache
def _data() -> tuple[str, ...]:
    """The folders of shipped cards and profiles."""
    return tuple(f"{data_dir(kind)}{os.sep}" for kind in ("cards", "profiles"))


@cache
def _readable() -> tuple[str, ...]:
    """What strategist is made of: its data, Python with its packages, the Hub's cache, and this machine as it was measured."""
    python = (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *filter(None, sys.path))
    own = (data_dir("cards"), data_dir("profiles"), hub_cache(), profile_path())
    return tuple(os.path.realpath(place) for place in (*map(str, own), *python, *_SYSTEM))
