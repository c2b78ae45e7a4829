"""The workspace: the only folder that an agent can read and write, and the confinement of a process to it."""

import errno
import os
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from strategist import api
from strategist.agent import landlock
from strategist.agent.problem import RefusedError
from strategist.errors import FileError
from strategist.paths import data_dir

SERVER_FOLDER = ".strategist"
"""The server's own folder in the workspace: plans, jobs, temporary files and the log. Agents cannot access it."""

_WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree")
_READS = ("os.listdir", "os.scandir")
_DEVICES = ("/dev/null", "/dev/nvidia*", "/dev/nvidia-caps/*")
_PROGRAMS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom", "/dev/random")
"""Paths that a program started by a call needs: a simulated rank, or nvidia-smi."""

_SYSTEM = ("/proc", "/sys", "/dev/null", "/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo")


@dataclass(frozen=True)
class Workspace:
    """A folder, by its real path."""

    root: Path

    @classmethod
    def at(cls, folder: str | Path) -> "Workspace":
        """The workspace in an existing folder.

        Raises:
            FileError: it does not exist.
        """
        root = Path(folder).expanduser().resolve()
        if not root.is_dir():
            raise FileError(folder, "is not a folder; make it, or name another with --workspace")
        return cls(root)

    def inside(self, text: str) -> Path:
        """The real path of a path in the workspace, links followed.

        Raises:
            RefusedError: it is outside.
        """
        path = self.root if "\0" in text else (self.root / text).resolve()
        server_file = path.is_relative_to(self.root / SERVER_FOLDER)
        if "\0" in text or text.startswith("~") or server_file or not path.is_relative_to(self.root):
            raise RefusedError(
                "outside_workspace", f"{text} lies outside the workspace", "name a path inside, relative to its root"
            )
        return path

    def server_folder(self, *names: str) -> Path:
        """The server's own folder, or one in it; created if missing."""
        folder = self.root.joinpath(SERVER_FOLDER, *names)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def write_new(self, name: str, content: str) -> str:
        """Writes a new file; returns its path relative to the workspace.

        Raises:
            RefusedError: the path is outside.
            FileError: the file exists, or cannot be written.
        """
        path = self.inside(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(content)
        except FileExistsError:
            raise FileError(path, "is there already; name a new file") from None
        except OSError as error:
            raise FileError(path, f"cannot be written: {error.strerror}; name another file") from None
        return self.show(path)

    def show(self, path: str | Path) -> str:
        """A path relative to the workspace."""
        real = Path(path)
        return real.relative_to(self.root).as_posix() if real.is_relative_to(self.root) else real.name


def confine(workspace: Workspace, temporary: Path) -> None:
    """Confines this process to one workspace, permanently: for calls of agents.

    Python then refuses to open connections, and files elsewhere except strategist's own. With Landlock the kernel does the same for
    libraries, for programs that a call starts, and for links that change while they are followed. It must be called before the
    process starts a thread: the kernel confines the calling thread and what it starts.
    """
    tempfile.tempdir = str(temporary)
    devices = [path for pattern in _DEVICES for path in glob(pattern)]
    libraries = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    landlock.confine([*_readable(), *_PROGRAMS, *libraries], [str(workspace.root), *devices])
    root = str(workspace.root)
    sys.addaudithook(lambda event, arguments: _check(root, event, arguments))


_BUSY = threading.local()


@contextmanager
def _unchecked() -> Iterator[None]:
    """Disables the check for what it opens itself in this thread."""
    _BUSY.active = True
    try:
        yield
    finally:
        _BUSY.active = False


def _check(root: str, event: str, arguments: tuple[Any, ...]) -> None:
    if getattr(_BUSY, "active", False):
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


def _check_path(root: str, path: Any, *, written: bool) -> None:
    if not isinstance(path, str | bytes | os.PathLike):  # the number of an open file, or nothing
        return
    text = os.fsdecode(path)
    if text.startswith("file:"):  # a URI of SQLite
        text = unquote(text.removeprefix("file:").partition("?")[0])
    if not written and ".." not in text and text.startswith(_data()):  # thousands of times a call
        return
    with _unchecked():  # resolving a link must not trigger this check again
        real = os.path.realpath(text)
        allowed = (root, os.devnull) if written else (root, *_readable())
    if not any(real == root_path or real.startswith(f"{root_path}{os.sep}") for root_path in allowed):
        raise PermissionError(errno.EACCES, "lies outside the workspace", text)


@cache
def _data() -> tuple[str, ...]:
    """Folders of shipped cards and profiles."""
    return tuple(f"{data_dir(kind)}{os.sep}" for kind in ("cards", "profiles"))


@cache
def _readable() -> tuple[str, ...]:
    """Paths of strategist itself: its data, Python with its packages, the Hub's cache, and the profile of this machine."""
    python = (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *filter(None, sys.path))
    return tuple(os.path.realpath(path) for path in (*map(str, api.readable_places()), *python, *_SYSTEM))
