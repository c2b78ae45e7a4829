"""Stands in for torchrun: ``stand_in_launcher.py N RESTARTS COMMAND...`` starts N ranks, each in a new session.

When one fails the others get SIGTERM, and all are restarted if restarts are left.
"""

import os
import signal
import subprocess
import sys
import time


def launch(ranks: int, restarts: int, command: list[str]) -> int:
    return next((0 for _ in range(restarts + 1) if attempt(ranks, command) == 0), 1)


def attempt(ranks: int, command: list[str]) -> int:
    children = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}, start_new_session=True) for rank in range(ranks)]
    signal.signal(signal.SIGTERM, lambda *_: [os.killpg(child.pid, signal.SIGTERM) for child in children])
    while all(child.poll() in (None, 0) for child in children):
        if all(child.poll() == 0 for child in children):
            return 0
        time.sleep(0.02)
    for rank, child in enumerate(children):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
        elif child.returncode < 0:
            print(f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {child.returncode} (pid: {child.pid})", flush=True)
    for child in children:
        child.wait()
    return 1


if __name__ == "__main__":
    sys.exit(launch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
