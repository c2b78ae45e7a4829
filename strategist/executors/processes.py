"""Processes of a trial, found by the tag in their environment and ended for certain. Linux only.

Ranks live in sessions of their own and may start children in others, so neither a process group nor the family tree finds them
all; an environment is inherited by every one of them.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection

TAG = "STRATEGIST_TRIAL"
SCRATCH = "STRATEGIST_SCRATCH"
"""Names the folder of a trial's temporary files."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
SCAN_SECONDS = 0.02


def die_with_parent(number: int) -> None:
    """Has the kernel send this signal to the calling process when its parent ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Makes the calling process the new parent of descendants whose own parent ended, so that it can reap them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def tagged(prefix: str) -> dict[int, str]:
    """The tag of every running process whose tag begins with ``prefix``, by process id."""
    mark = f"\0{TAG}={prefix}".encode()
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:  # ended meanwhile, or another user's
            continue
        if (start := environment.find(mark)) >= 0:
            found[int(name)] = environment[start + len(TAG) + 2 :].split(b"\0", 1)[0].decode(errors="replace")
    return found


def end(tag: str, grace_seconds: float, spare: Collection[int] = ()) -> None:
    """Ends every process with this tag: SIGTERM, then SIGKILL until none is left; those in ``spare`` stay.

    A stopped process, or one that ignores SIGTERM, is gone right after the grace. One that the kernel holds in a system call dies
    when the call returns; five seconds are waited for that.
    """
    spared = {*spare, os.getpid()}
    asked: set[int] = set()
    calm = 0
    begin = time.monotonic()
    while calm < 2 and time.monotonic() < begin + grace_seconds + 5.0:
        left = {pid for pid, name in tagged(tag).items() if name == tag} - spared
        if time.monotonic() < begin + grace_seconds:
            send(left - asked, signal.SIGTERM)
            asked |= left
        else:
            send(left, signal.SIGKILL)
        calm = 0 if left else calm + 1  # twice, since a process shows no environment while it changes its program
        time.sleep(SCAN_SECONDS)


def send(pids: Collection[int], number: int) -> None:
    """Sends the signal to those that still run."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def new_tag(study: str) -> str:
    """A tag for one trial of ``study``: names the process that runs it, by number and start, and is never given twice."""
    pid = os.getpid()
    return f"{study}.{pid}.{started(pid)}.{time.monotonic_ns()}"


def sweep(study: str) -> int:
    """Ends what earlier trials of ``study`` left behind, if the process that ran them is gone; returns how many processes."""
    stale = {pid: tag for pid, tag in tagged(f"{study}.").items() if not owner_lives(tag)}
    for tag in set(stale.values()):
        end(tag, grace_seconds=0.0)
    return len(stale)


def owner_lives(tag: str) -> bool:
    """Whether the process that runs the trial with this tag is there."""
    parts = tag.rsplit(".", 3)
    return len(parts) == 4 and parts[1].isdigit() and parts[2] != "" and started(int(parts[1])) == parts[2]


def started(pid: int) -> str:
    """When the process started, in clock ticks since boot (proc(5), stat, field 22); empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def supported() -> bool:
    """Whether this system shows what the supervision of trials needs."""
    return sys.platform == "linux" and os.path.exists("/proc/self/environ")
