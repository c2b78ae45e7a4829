"""Process of a trial: starts it in its own session, watches its deadlines, and ends it with all processes and temporary files."""

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
from strategist.executors.engine import TORCHRUN, Engine
from strategist.executors.executor import OnEvent
from strategist.executors.process_supervisor import GRACE, PARENT
from strategist.frozen import frozen

POLL_SECONDS = 0.05
EVENT_SECONDS = 1.0
TERM_GRACE_SECONDS = 0.5

HOSTS_GRACE_SECONDS = 10.0
"""Seconds for agents on other hosts to end their processes and report it."""


@frozen
class TrialCommand:
    """The command that runs a trial.

    tag: marks its processes. ranks: number of ranks that are watched. restarts: how often the command may restart these.
    engine: starts the ranks. If they run elsewhere, this machine's memory and temporary files are not watched; if they wait for
        machines, the trial begins when it has them.
    """

    words: tuple[str, ...]
    environment: dict[str, str]
    tag: str
    ranks: int
    restarts: int = 0
    engine: Engine = TORCHRUN

    @property
    def grace_seconds(self) -> float:
        """Seconds between SIGTERM and SIGKILL, in which processes can end by themselves."""
        return HOSTS_GRACE_SECONDS if self.engine.elsewhere else TERM_GRACE_SECONDS


def supervise(command: TrialCommand, folder: Path, settings: TrialSettings, on_event: OnEvent | None) -> Ending:
    """Runs ``command`` under a process supervisor until it ends or a deadline passes. On every exit, also by an exception, all
    processes with the tag are ended.
    """
    oom_kills, tag, grace_seconds = host_memory.oom_kills(), command.tag, command.grace_seconds
    watch = Watch(folder, command.ranks, settings, time.monotonic(), queues=command.engine.queues, restarts=command.restarts)
    with nullcontext() if command.engine.elsewhere else TrialMachine(tag) as machine:
        scratch_variables = {} if machine is None else temporary_files.environment(machine.folder)
        supervisor, deadline = None, None
        try:
            variables = {**command.environment, **scratch_variables}
            supervisor = start_supervised(command.words, folder=folder, environment=variables, tag=tag, grace_seconds=grace_seconds)
            deadline = _wait(supervisor, watch, machine, on_event)
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


class TrialMachine:
    """This machine during a trial: its memory is watched, and the trial's temporary files are removed at the end."""

    def __init__(self, tag: str) -> None:
        self.folder = temporary_files.make(tag)
        self._memory, self._shared = host_memory.MemoryWatch(tag), temporary_files.SharedMemoryWatch(tag, self.folder)

    def look(self) -> Deadline | None:
        """Why the trial must end; None if it may continue."""
        self._shared.look()
        return self._memory.look()

    def __enter__(self) -> "TrialMachine":
        return self

    def __exit__(self, *error: object) -> None:
        temporary_files.clear(self.folder)


def sweep(study: str) -> int:
    """Ends the processes that trials of ``study`` left behind when their tuner was killed, and removes their temporary files;
    returns the number of processes.
    """
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
    """Starts ``command`` under a process supervisor in its own session. However this process ends, all processes of the command
    end, too.

    Raises:
        InputError: the system cannot start a process.
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


def _wait(
    supervisor: subprocess.Popen[bytes], watch: Watch, machine: TrialMachine | None, on_event: OnEvent | None
) -> Deadline | None:
    reported: Progress | None = None
    reported_at = 0.0
    while True:
        has_ended = supervisor.poll() is not None  # read before the files, so that the last look has all of them
        now = time.monotonic()
        deadline = (machine and machine.look()) or watch.look(now)
        if on_event is not None:
            progress = watch.progress(now)
            advanced = reported is not None and (progress.phase, progress.step) != (reported.phase, reported.step)
            if reported is None or now - reported_at >= EVENT_SECONDS or advanced:
                on_event(progress)
                reported, reported_at = progress, now
        if has_ended:
            return None
        if deadline is not None:
            return deadline
        with suppress(subprocess.TimeoutExpired):
            supervisor.wait(POLL_SECONDS)


def end_supervised(supervisor: subprocess.Popen[bytes] | None, tag: str, grace_seconds: float = TERM_GRACE_SECONDS) -> None:
    """Ends the process that :func:`start_supervised` started, and all its descendants.

    The process supervisor ends last: it reaps the descendants, ends those without the tag, and then exits. If ``supervisor`` is
    None, an interrupt came before its start was known; it may run already, so its tag is searched.
    """
    if supervisor is None:
        processes.end(tag, grace_seconds=0.0)
        return
    supervisor.terminate()  # ends a supervisor that has started nothing yet; a later one sees that its tuner lives, and ignores it
    processes.end(tag, grace_seconds, spare=[supervisor.pid])
    try:
        supervisor.wait(grace_seconds + 1.0)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
        processes.end(tag, grace_seconds=0.0)
