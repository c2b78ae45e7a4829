"""Host memory during a trial: available memory, and the processes that use it. Linux only."""

from contextlib import suppress
from pathlib import Path

from strategist.executors.deadlines import Deadline
from strategist.executors.processes import tagged
from strategist.profiles.local_machine import host_memory_bytes
from strategist.units import GIB

FLOOR_BYTES = 3 * GIB
"""Memory that a trial leaves to other programs. Ranks fill memory at some GiB per second, so 2 GiB are still free when they have
ended.
"""

FLOOR_SHARE = 1 / 8
"""Share of a small machine's memory that is left instead."""


def floor_bytes() -> int:
    """Bytes of this machine's memory that a trial must leave free."""
    return min(FLOOR_BYTES, int(FLOOR_SHARE * host_memory_bytes()))


def available_bytes() -> int:
    """Bytes that processes here can still allocate without swapping (proc(5), /proc/meminfo)."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def held_bytes(tag: str) -> int:
    """Resident memory of a trial's processes; shared pages count proportionally."""
    return sum(_share(pid) for pid, name in tagged(tag).items() if name == tag)


def oom_kills(root: Path = Path("/")) -> int:
    """Number of processes of this process's control group that the kernel has killed for memory (Linux, cgroup-v2,
    memory.events), so that other containers do not count; if it is unknown, the number on the whole machine (proc(5),
    /proc/vmstat).
    """
    for path in (_control_group(root) / "memory.events", root / "proc/vmstat"):
        with suppress(OSError):
            return sum(
                int(line.split()[1]) for line in path.read_text(encoding="ascii").splitlines() if line.startswith("oom_kill ")
            )
    return 0


def _control_group(root: Path) -> Path:
    """The folder of this process's control group."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                return root / "sys/fs/cgroup" / line.removeprefix("0::").lstrip("/")
    return root / "sys/fs/cgroup"


class MemoryWatch:
    """Checks that a trial leaves enough memory free.

    If it does not, the trial is at fault if it holds at least half of the decrease since it began; otherwise other programs are.
    """

    def __init__(self, tag: str) -> None:
        self._tag, self._floor, self._before = tag, floor_bytes(), available_bytes()

    def look(self) -> Deadline | None:
        """Why the trial must end; None if enough memory is free."""
        available = available_bytes()
        if available >= self._floor:
            return None
        return Deadline.MEMORY if held_bytes(self._tag) >= (self._before - available) / 2 else Deadline.CROWDED


def _share(pid: int) -> int:
    """Proportional resident memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0
