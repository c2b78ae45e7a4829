"""One trial from start to end: started in a session of its own, watched against its deadlines, and ended without a trace."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from strategist.contract.measurement import TrialSettings
from strategist.executors import processes
from strategist.executors.executor import OnEvent, Progress
from strategist.executors.keeper import PARENT
from strategist.executors.watch import Deadline, Ending, Watch

POLL_SECONDS = 0.05
EVENT_SECONDS = 1.0
TERM_GRACE_SECONDS = 1.0


def supervise(
    command: Sequence[str],
    *,
    folder: Path,
    environment: dict[str, str],
    tag: str,
    ranks: int,
    settings: TrialSettings,
    on_event: OnEvent | None,
    grace_seconds: float = TERM_GRACE_SECONDS,
    queues: bool = False,
) -> Ending:
    """Runs ``command`` under a keeper until it ends or a deadline passes; on every way out, an exception too, the tag is swept.

    Where the command ``queues`` for machines, the trial begins when it has them."""
    oom_kills = _oom_kills()
    watch = Watch(folder, ranks, settings, time.monotonic(), queues=queues)
    keeper = start_kept(command, folder=folder, environment=environment, tag=tag)
    try:
        deadline = _wait(keeper, watch, on_event)
        ended, wall_seconds = watch.ended(), time.monotonic() - watch.begun
    finally:
        end_kept(keeper, tag, grace_seconds)
    return Ending(
        exit_code=keeper.returncode,
        deadline=deadline,
        ended=ended,
        laggard=watch.laggard,
        wall_seconds=wall_seconds,
        oom_kills=_oom_kills() - oom_kills,
        restarts=watch.restarts,
    )


def start_kept(command: Sequence[str], *, folder: Path, environment: dict[str, str], tag: str) -> subprocess.Popen[bytes]:
    """Starts ``command`` under a keeper, in a session of its own; whatever becomes of this process, nothing of it is left."""
    return subprocess.Popen(
        [sys.executable, "-m", "strategist.executors.keeper", "trial", str(folder), *command],
        env={**environment, processes.TAG: tag, PARENT: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait(keeper: subprocess.Popen[bytes], watch: Watch, on_event: OnEvent | None) -> Deadline | None:
    told: Progress | None = None
    told_at = 0.0
    while True:
        now = time.monotonic()
        deadline = watch.look(now)
        if on_event is not None:
            progress = watch.progress(now)
            if told is None or now - told_at >= EVENT_SECONDS or _moved(progress, told):
                on_event(progress)
                told, told_at = progress, now
        if deadline is not None:
            return deadline
        try:
            keeper.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return None


def _moved(progress: Progress, told: Progress) -> bool:
    return (progress.phase, progress.step) != (told.phase, told.step)


def end_kept(keeper: subprocess.Popen[bytes], tag: str, grace_seconds: float = TERM_GRACE_SECONDS) -> None:
    """Ends what :func:`start_kept` started, and all that this started.

    The keeper goes last: it reaps what its dying descendants leave, and leaves by itself once the launcher is gone.
    """
    processes.end(tag, grace_seconds, spare=[keeper.pid])
    try:
        keeper.wait(1.0)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def _oom_kills() -> int:
    """Processes that the kernel has killed for memory since boot (proc(5), /proc/vmstat)."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except OSError:
        return 0
