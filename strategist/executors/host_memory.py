"""Host memory during a trial: memory left, and processes that use it. Linux only."""

from contextlib import suppress
from pathlib import Path

from strategist.executors.deadlines import Deadline
from strategist.executors.processes import tagged
from strategist.profiles.local_machine import host_memory_bytes
from strategist.units import GIB

FLOOR_BYTES = 3 * GIB
"""What a trial leaves to everybody else: ranks fill memory by some GiB a second, so 2 GiB are still free when they are gone."""

FLOOR_SHARE = 1 / 8
"""Of a small machine's memory it is so much instead."""


def floor_bytes() -> int:
    """What of this machine's memory stays free."""
    return min(FLOOR_BYTES, int(FLOOR_SHARE * host_memory_bytes()))


def available_bytes() -> int:
    """What processes here may still take without swapping (proc(5), /proc/meminfo)."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def held_bytes(tag: str) -> int:
    """Resident memory of a trial's processes, what they share with others by parts."""
    return sum(_share(pid) for pid, name in tagged(tag).items() if name == tag)


def oom_kills(root: Path = Path("/")) -> int:
    """How many processes of this one's control group the kernel has killed for memory (Linux, cgroup-v2, memory.events), so that
    what happens to other containers does not count; where it does not tell, of the machine (proc(5), /proc/vmstat)."""
    for path in (_group(root) / "memory.events", root / "proc/vmstat"):
        with suppress(OSError):
            return sum(
                int(line.split()[1]) for line in path.read_text(encoding="ascii").splitlines() if line.startswith("oom_kill ")
            )
    return 0


def _group(root: Path) -> Path:
    """The folder of this process's control group."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                return root / "sys/fs/cgroup" / line.removeprefix("0::").lstrip("/")
    return root / "sys/fs/cgroup"


class MemoryWatch:
    """Sees that a trial leaves this machine enough memory. Where it does not, the cause is judged by the fall since the trial
    began: a trial that holds half of it has run out of memory, and any other has met a crowded machine."""

    def __init__(self, tag: str) -> None:
        self._tag, self._floor, self._before = tag, floor_bytes(), available_bytes()

    def look(self) -> Deadline | None:
        """Why the trial must end; None where there is memory left."""
        left = available_bytes()
        if left >= self._floor:
            return None
        return Deadline.MEMORY if held_bytes(self._tag) >= (self._before - left) / 2 else Deadline.CROWDED


def _share(pid: int) -> int:
    """0 of a process that has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0
