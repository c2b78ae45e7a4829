"""Processes of workers, as the system shows them."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from strategist.agent.workers import template


def children(parent: int) -> Iterator[int]:
    """The processes that a process has started and that still run."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # ended meanwhile
            continue
        if int(ppid) == parent and state != "Z":
            yield int(stat.parent.name)


def workers() -> set[int]:
    """Those of the servers of this process."""
    return set(children(template().process))


def new_worker(before: set[int]) -> int:
    """The worker that has come beside those before."""
    while not (new := workers() - before):
        time.sleep(0.005)
    return new.pop()


def stopped_worker(before: set[int]) -> int:
    """The same, as good as one that computes for ever, but without the computing."""
    worker = new_worker(before)
    while os.getpgid(worker) != worker:
        time.sleep(0.005)
    os.killpg(worker, signal.SIGSTOP)
    return worker


def wait_until_gone(*processes: int) -> None:
    """Until none of the processes is there."""
    while any(Path(f"/proc/{process}").exists() for process in processes):
        time.sleep(0.005)
