"""Worker processes, read from /proc."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from strategist.agent.workers import template


def children(parent: int) -> Iterator[int]:
    """Running child processes of a process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # ended meanwhile
            continue
        if int(ppid) == parent and state != "Z":
            yield int(stat.parent.name)


def workers() -> set[int]:
    """Workers of the servers in this process."""
    return set(children(template().process))


def new_worker(before: set[int]) -> int:
    """The worker that was started since ``before``."""
    while not (new := workers() - before):
        time.sleep(0.005)
    return new.pop()


def stopped_worker(before: set[int]) -> int:
    """A new worker, stopped by SIGSTOP: never ends, and takes no processor time."""
    worker = new_worker(before)
    while os.getpgid(worker) != worker:
        time.sleep(0.005)
    os.killpg(worker, signal.SIGSTOP)
    return worker


def wait_until_gone(*processes: int) -> None:
    """Waits until all of the processes have ended."""
    while any(Path(f"/proc/{process}").exists() for process in processes):
        time.sleep(0.005)
