"""Temporary files of a trial: a folder that its processes use as TMPDIR, and the files that they leave in shared memory.

Files in ``/dev/shm`` do not name their owner. A file is attributed to the trial if it appeared after the trial began and a
process of the trial had it open or mapped; it is removed when no process uses it. A file that is created and abandoned within a
tenth of a second cannot be attributed, and stays. Linux only.
"""

import getpass
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from strategist.errors import InputError
from strategist.executors.processes import SCRATCH, owner_is_running, tagged

PREFIX = "strategist-"  # short, since paths of sockets are limited to 108 characters
OWNER, SHARED = ".owner", ".shared"
SHARED_MEMORY = Path("/dev/shm")
SCANS_PER_FILE = 20
"""Number of looks after which a new file of shared memory, not used by the trial so far, is attributed to another program."""


def make(tag: str) -> Path:
    """Creates a folder for the trial with this tag.

    Raises:
        InputError: temporary files cannot be written.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        (folder / OWNER).write_text(f"{_machine()} {tag}", encoding="utf-8")
    except OSError as error:
        raise InputError("temporary files", f"cannot be written: {error.strerror}", "make room, or set TMPDIR") from None
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Variables that make processes use the folder. The compile cache of torch stays outside, where the next trial finds it."""
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
    return {"TMPDIR": str(folder), SCRATCH: str(folder), "TORCHINDUCTOR_CACHE_DIR": kept}


def clear(folder: Path) -> None:
    """Removes the folder, and the shared memory listed in it; to be called after the trial's processes have ended."""
    with suppress(OSError):
        names = {name for name in (folder / SHARED).read_text(encoding="utf-8").split("\0") if name} & set(_shared_files())
        for name in names - (_in_use(names, map(int, filter(str.isdigit, os.listdir("/proc")))) if names else set()):
            (SHARED_MEMORY / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(study: str) -> int:
    """Removes the folders of trials of ``study`` whose tuner is gone; returns their number."""
    stale = [folder for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_stale(folder, study)]
    for folder in stale:
        clear(folder)
    return len(stale)


class SharedMemoryWatch:
    """Lists the files of shared memory that belong to the trial, in its folder."""

    def __init__(self, tag: str, folder: Path) -> None:
        self._tag, self._folder = tag, folder
        self._decided = set(_shared_files())
        self._scan_counts: dict[str, int] = {}

    def look(self) -> None:
        """Attributes files that were also there at the last look; most files exist for less time."""
        undecided = set(_shared_files()) - self._decided
        self._scan_counts = {name: self._scan_counts.get(name, 0) + 1 for name in undecided}
        seen_twice = {name for name, count in self._scan_counts.items() if count > 1}
        if not seen_twice:
            return
        used_by_trial = _in_use(seen_twice, (pid for pid, name in tagged(self._tag).items() if name == self._tag))
        self._decided |= used_by_trial | {name for name in seen_twice if self._scan_counts[name] > SCANS_PER_FILE}
        if used_by_trial:
            with suppress(OSError), (self._folder / SHARED).open("a", encoding="utf-8") as file:
                file.write("".join(f"{name}\0" for name in used_by_trial))


def _shared_files() -> Iterable[str]:
    """Names of the files of shared memory; empty if the system has none."""
    with suppress(OSError), os.scandir(SHARED_MEMORY) as entries:
        return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return []


def _in_use(names: Iterable[str], pids: Iterable[int]) -> set[str]:
    """The names that one of the processes has open or mapped."""
    paths = {str(SHARED_MEMORY / name): name for name in names}
    return {paths[path] for pid in pids for path in _files(pid) if path in paths}


def _files(pid: int) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            found |= {line[line.index("/") :].rstrip("\n") for line in file if f"{SHARED_MEMORY}/" in line}
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def _is_stale(folder: Path, study: str) -> bool:
    try:
        machine, _, tag = (folder / OWNER).read_text(encoding="utf-8").partition(" ")
    except (OSError, ValueError):
        return False
    return machine == _machine() and tag.startswith(f"{study}.") and not owner_is_running(tag)


def _machine() -> str:
    """Identifier of this machine, its boot and its PID namespace, within which process numbers are unique."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
