"""One trial from start to end: started in a session of its own, watched against its deadlines, and ended without a trace."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from strategist.contract.measurement import TrialSettings
from strategist.contract.progress import Progress
from strategist.errors import InputError
from strategist.executors import host_memory, processes, temporary_files
from strategist.executors.deadlines import Deadline, Ending, Watch
from strategist.executors.executor import OnEvent
from strategist.executors.process_supervisor import GRACE, PARENT

POLL_SECONDS = 0.05
EVENT_SECONDS = 1.0
TERM_GRACE_SECONDS = 0.5


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
    restarts: int = 0,
    queues: bool = False,
    elsewhere: bool = False,
) -> Ending:
    """Runs ``command`` under a keeper until it ends or a deadline passes; on every way out, an exception too, the tag is swept.

    The command may start its ranks again, ``restarts`` times. Where it ``queues`` for machines, the trial begins when it has them.
    One whose ranks run ``elsewhere`` takes neither memory nor temporary files of this machine."""
    oom_kills = host_memory.oom_kills()
    watch = Watch(folder, ranks, settings, time.monotonic(), queues=queues, restarts=restarts)
    with nullcontext() if elsewhere else Place(tag) as place:
        own = {} if place is None else temporary_files.environment(place.folder)
        supervisor, deadline = None, None
        try:
            supervisor = start_supervised(
                command, folder=folder, environment={**environment, **own}, tag=tag, grace_seconds=grace_seconds
            )
            deadline = _wait(supervisor, watch, place, on_event)
            ended, wall_seconds = watch.ended(), time.monotonic() - watch.begun
        finally:
            at_once = deadline in (Deadline.MEMORY, Deadline.CROWDED)
            end_supervised(supervisor, tag, 0.0 if at_once else grace_seconds)
    return Ending(
        exit_code=supervisor.returncode,
        deadline=deadline,
        ended=ended,
        straggler=watch.straggler,
        wall_seconds=wall_seconds,
        oom_kills=host_memory.oom_kills() - oom_kills,
        restarts=watch.restarts,
    )


class Place:
    """This machine, as a trial uses it: its memory is watched, its temporary files are removed at the end."""

    def __init__(self, tag: str) -> None:
        self.folder = temporary_files.make(tag)
        self._memory, self._shared = host_memory.MemoryWatch(tag), temporary_files.SharedMemoryWatch(tag, self.folder)

    def look(self) -> Deadline | None:
        """Why the trial must end; None where it may go on."""
        self._shared.look()
        return self._memory.look()

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *error: object) -> None:
        temporary_files.clear(self.folder)


def sweep(study: str) -> int:
    """Ends the processes that trials of ``study`` left behind when their tuner was killed, and removes their temporary files;
    returns how many processes."""
    found = processes.sweep(study)
    temporary_files.sweep(study)
    return found


def start_supervised(
    command: Sequence[str],
    *,
    folder: Path,
    environment: dict[str, str],
    tag: str,
    grace_seconds: float = TERM_GRACE_SECONDS,
) -> subprocess.Popen[bytes]:
    """Starts ``command`` under a keeper, in a session of its own; whatever becomes of this process, nothing of it is left.

    Raises:
        InputError: the system starts no process.
    """
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "strategist.executors.process_supervisor", "trial", str(folder), *command],
            env={**environment, processes.TAG: tag, PARENT: str(os.getpid()), GRACE: str(grace_seconds)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        law = f"no process can be started: {error.strerror}"
        raise InputError(f"trial in {folder}", law, "look at free memory, and at ulimit -u") from None


def _wait(supervisor: subprocess.Popen[bytes], watch: Watch, place: Place | None, on_event: OnEvent | None) -> Deadline | None:
    told: Progress | None = None
    told_at = 0.0
    while True:
        over = supervisor.poll() is not None  # asked first, so that the last look sees all
        now = time.monotonic()
        deadline = (place and place.look()) or watch.look(now)
        if on_event is not None:
            progress = watch.progress(now)
            if told is None or now - told_at >= EVENT_SECONDS or _moved(progress, told):
                on_event(progress)
                told, told_at = progress, now
        if over:
            return None
        if deadline is not None:
            return deadline
        with suppress(subprocess.TimeoutExpired):
            supervisor.wait(POLL_SECONDS)


def _moved(progress: Progress, told: Progress) -> bool:
    return (progress.phase, progress.step) != (told.phase, told.step)


def end_supervised(supervisor: subprocess.Popen[bytes] | None, tag: str, grace_seconds: float = TERM_GRACE_SECONDS) -> None:
    """Ends what :func:`start_supervised` started, and all that this started.

    The keeper goes last: it reaps what its dying descendants leave, ends those without the tag, and leaves by itself then. None
    stands for one that an interruption came before: it may run already, and its tag is looked for.
    """
    if supervisor is None:
        processes.end(tag, grace_seconds=0.0)
        return
    supervisor.terminate()  # ends one that has started nothing yet; a later one knows that its tuner lives, and goes on
    processes.end(tag, grace_seconds, spare=[supervisor.pid])
    try:
        supervisor.wait(grace_seconds + 1.0)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
        processes.end(tag, grace_seconds=0.0)
