"""Processes of a trial: found by the tag in their environment, and ended reliably. Linux only.

Ranks run in their own sessions and may start children in other ones, so neither a process group nor the process tree contains
all of them; but each inherits the environment.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection

TAG = "STRATEGIST_TRIAL"
SCRATCH = "STRATEGIST_SCRATCH"
"""Environment variable with the folder of a trial's temporary files."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
SCAN_SECONDS = 0.02


def die_with_parent(number: int) -> None:
    """Makes the kernel send this signal to the calling process when its parent ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Makes the calling process the parent of orphaned descendants, so that it can reap them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def tagged(prefix: str) -> dict[int, str]:
    """Tags of all running processes whose tag begins with ``prefix``, by process id."""
    mark = f"\0{TAG}={prefix}".encode()
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:  # the process has ended, or belongs to another user
            continue
        if (start := environment.find(mark)) >= 0:
            found[int(name)] = environment[start + len(TAG) + 2 :].split(b"\0", 1)[0].decode(errors="replace")
    return found


def end(tag: str, grace_seconds: float, spare: Collection[int] = ()) -> None:
    """Ends every process with this tag: SIGTERM, then SIGKILL until none is left; processes in ``spare`` are not ended.

    A stopped process, or one that ignores SIGTERM, is killed after the grace period. A process blocked in a system call dies
    when the call returns; this is waited for up to 5 s.
    """
    spared = {*spare, os.getpid()}
    terminated: set[int] = set()
    empty_scans = 0
    begin = time.monotonic()
    while empty_scans < 2 and time.monotonic() < begin + grace_seconds + 5.0:
        running = {pid for pid, name in tagged(tag).items() if name == tag} - spared
        if time.monotonic() < begin + grace_seconds:
            send(running - terminated, signal.SIGTERM)
            terminated |= running
        else:
            send(running, signal.SIGKILL)
        empty_scans = 0 if running else empty_scans + 1  # two empty scans, since a process shows no environment during exec
        time.sleep(SCAN_SECONDS)


def send(pids: Collection[int], number: int) -> None:
    """Sends the signal to those of the processes that still run."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def new_tag(study: str) -> str:
    """A unique tag for one trial of ``study``; it contains the process id and start time of the process that runs the trial."""
    pid = os.getpid()
    return f"{study}.{pid}.{started(pid)}.{time.monotonic_ns()}"


def sweep(study: str) -> int:
    """Ends processes of earlier trials of ``study`` if the process that ran the trial is gone; returns their number."""
    stale = {pid: tag for pid, tag in tagged(f"{study}.").items() if not owner_is_running(tag)}
    for tag in set(stale.values()):
        end(tag, grace_seconds=0.0)
    return len(stale)


def owner_is_running(tag: str) -> bool:
    """Whether the process that runs the trial with this tag still exists."""
    parts = tag.rsplit(".", 3)
    return len(parts) == 4 and parts[1].isdigit() and parts[2] != "" and started(int(parts[1])) == parts[2]


def started(pid: int) -> str:
    """Start time of the process in clock ticks since boot (proc(5), stat, field 22); empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def supported() -> bool:
    """Whether this system supports the supervision of trials."""
    return sys.platform == "linux" and os.path.exists("/proc/self/environ")
