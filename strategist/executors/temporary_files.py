"""Temporary files of a trial: a folder that its processes take for the system's, and what they leave in shared memory.

Files in ``/dev/shm`` do not say whose they are. One counts as the trial's when it appeared after the trial began and a process of
the trial was seen to hold it; it is removed when no process holds it. One that is made and left within a tenth of a second is
not told from those of others, and stays. Linux only.
"""

import getpass
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from strategist.errors import InputError
from strategist.executors.processes import SCRATCH, owner_lives, tagged

PREFIX = "strategist-"  # short, since names of sockets below it end at 108 characters
OWNER, SHARED = ".owner", ".shared"
SHARED_MEMORY = Path("/dev/shm")
LOOKS = 20
"""So often a new file of shared memory is looked for among the trial's; after that, it belongs to another program."""


def make(tag: str) -> Path:
    """A new folder for the trial with this tag.

    Raises:
        InputError: there is no place for temporary files.
    """
    try:
        place = Path(tempfile.mkdtemp(prefix=PREFIX))
        (place / OWNER).write_text(f"{_machine()} {tag}", encoding="utf-8")
    except OSError as error:
        raise InputError("temporary files", f"cannot be written: {error.strerror}", "make room, or set TMPDIR") from None
    return place


def environment(place: Path) -> dict[str, str]:
    """Has processes use the folder; what torch compiles stays where the next trial finds it."""
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
    return {"TMPDIR": str(place), SCRATCH: str(place), "TORCHINDUCTOR_CACHE_DIR": kept}


def clear(place: Path) -> None:
    """Removes the folder, and the shared memory that was noted in it; call it when the trial's processes are gone."""
    with suppress(OSError):
        names = {name for name in (place / SHARED).read_text(encoding="utf-8").split("\0") if name} & set(_shared())
        for name in names - (_held(names, map(int, filter(str.isdigit, os.listdir("/proc")))) if names else set()):
            (SHARED_MEMORY / name).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


def sweep(study: str) -> int:
    """Clears what trials of ``study`` left whose tuner is gone; returns how many folders."""
    stale = [place for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_stale(place, study)]
    for place in stale:
        clear(place)
    return len(stale)


class SharedMemoryWatch:
    """Notes in the folder which files of shared memory are the trial's."""

    def __init__(self, tag: str, place: Path) -> None:
        self._tag, self._place = tag, place
        self._decided = set(_shared())
        self._looks: dict[str, int] = {}

    def look(self) -> None:
        """Asks whose a file is once it is there for the second time: most live for less."""
        now = set(_shared()) - self._decided
        self._looks = {name: self._looks.get(name, 0) + 1 for name in now}
        asked = {name for name, looks in self._looks.items() if looks > 1}
        if not asked:
            return
        own = _held(asked, (pid for pid, name in tagged(self._tag).items() if name == self._tag))
        self._decided |= own | {name for name in asked if self._looks[name] > LOOKS}
        if own:
            with suppress(OSError), (self._place / SHARED).open("a", encoding="utf-8") as file:
                file.write("".join(f"{name}\0" for name in own))


def _shared() -> Iterable[str]:
    """Files of shared memory by name; none where the system has none."""
    with suppress(OSError), os.scandir(SHARED_MEMORY) as entries:
        return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return []


def _held(names: Iterable[str], pids: Iterable[int]) -> set[str]:
    """Those of the names that one of the processes has mapped or open."""
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


def _is_stale(place: Path, study: str) -> bool:
    try:
        machine, _, tag = (place / OWNER).read_text(encoding="utf-8").partition(" ")
    except (OSError, ValueError):
        return False
    return machine == _machine() and tag.startswith(f"{study}.") and not owner_lives(tag)


def _machine() -> str:
    """Where the numbers of processes mean the same: this machine since it booted, and the container on it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
