"""Supervises one command: ``python -m strategist.executors.process_supervisor ROLE FOLDER COMMAND...``, started by executors.

A supervisor runs above the launcher (role ``trial``) and above each rank (role ``rank``). It writes the output of its command to
a log of bounded size, records how the command ended, and makes sure that the command does not outlive its parent. The trial's
supervisor, when its tuner is gone, also ends every other process with the trial's tag. Standard library only: it must start
fast.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

from strategist.executors.processes import SCAN_SECONDS, SCRATCH, TAG, adopt_orphans, die_with_parent, end, send

LOG_BYTES = 2**19
"""Half of what is kept of a log: a larger file is renamed to ``.log.old``, and a new one begins."""

PARENT = "STRATEGIST_PARENT"
GRACE = "STRATEGIST_GRACE"
"""Environment variable with the seconds between SIGTERM and SIGKILL for what the command left behind."""

PERMANENT_EXIT_CODES = frozenset({77, 78, 79})
"""Exit codes of a rank that ran out of memory, diverged or was refused: a restart would fail again."""


class Log:
    """A log file of at most ``LOG_BYTES``; together with the file before it, it holds the end of a stream of any length."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._size = 0

    def write(self, data: bytes) -> None:
        """Appends the data. If the disk is full, they are dropped, because the command must go on."""
        try:
            if self._size + len(data) > LOG_BYTES:
                self._path.replace(self._path.with_suffix(".log.old"))
                self._file.close()
                self._file = self._path.open("wb", buffering=0)
                self._size = 0
            self._size += self._file.write(data)
        except OSError:
            return


def main(role: str, folder: str, *command: str) -> int:
    """Runs ``command`` to its end; returns its exit code, or 128 + n if signal n ended it."""
    name = f"rank-{os.environ['RANK']}" if role == "rank" else "launcher"
    if role == "rank" and (permanent_code := _prepare_restart(Path(folder), name)) is not None:
        return permanent_code
    tie_to_parent(role)
    code = keep(Path(folder), name, command, Log(Path(folder, f"{name}.log")))
    if role == "trial":
        end_descendants(float(os.environ.get(GRACE, "1")))
    return code


def keep(folder: Path, name: str, command: tuple[str, ...], log: Log) -> int:
    """Runs ``command`` with its output in ``log``, and records how it ended; returns its exit code, or 128 + n if signal n ended
    it.
    """
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, _ignore)
    output, child = _start(command)
    code = _follow(child, output, wake_reader, log)
    _note_end(folder / f"{name}.exit", code)
    return code if code >= 0 else 128 - code


def _prepare_restart(folder: Path, name: str) -> int | None:
    """Removes the files of an earlier attempt of this rank; returns its exit code if a restart would fail again, otherwise None."""
    code = _number(folder / f"{name}.exit")
    if code in PERMANENT_EXIT_CODES:
        return code
    log = folder / f"{name}.log"
    if log.exists():
        log.replace(log.with_suffix(".log.old"))
        attempts = folder / f"{name}.restarts"
        attempts.write_text(str((_number(attempts) or 0) + 1), encoding="ascii")
    for name_of_file in (f"{name}.exit", f"{name}.json", *(["progress.jsonl"] if name == "rank-0" else [])):
        (folder / name_of_file).unlink(missing_ok=True)
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def tie_to_parent(role: str) -> None:
    """Makes this supervisor end with its parent. A SIGTERM is held back until the command runs, so that the command gets it,
    too.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    parent = int(os.environ[PARENT]) if role == "trial" else os.getppid()
    if role == "trial":
        adopt_orphans()
        signal.signal(signal.SIGTERM, _on_terminate)
        die_with_parent(signal.SIGTERM)
    else:
        signal.signal(signal.SIGTERM, _ignore)  # the rank is in the same process group and gets the signal, too; wait for its end
        die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _on_terminate(number: int, frame: object) -> None:
    """Ends the whole trial if the tuner is gone. While the tuner lives, a SIGTERM is meant for the command, which gets it, too."""
    if os.getppid() != int(os.environ[PARENT]):
        end(os.environ[TAG], grace_seconds=0.0)
        if SCRATCH in os.environ:
            from strategist.executors.temporary_files import clear  # here, since supervisors must start fast

            clear(Path(os.environ[SCRATCH]))
        os._exit(1)


def _ignore(number: int, frame: object) -> None:
    """Does nothing. SIG_IGN would be inherited by the command."""


def _start(command: tuple[str, ...]) -> tuple[int, int]:
    """Starts the command; returns the read end of its output pipe, and its process id."""
    reader, writer = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child:
        os.close(writer)
        if signal.SIGTERM in signal.sigpending():
            os.kill(child, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return reader, child
    try:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: cannot be started: {error.strerror}\n".encode())
    finally:  # only reached if the command did not start: this forked copy of the supervisor must end
        os._exit(127)


def _follow(child: int, output: int, wake: int, log: Log) -> int:
    """Copies the output until the command ends, and returns its exit code; does not wait for descendants that keep the output
    open.
    """
    watched, code = [output, wake], None
    while code is None:
        ready, _, _ = select.select(watched, [], [])
        if output in ready and not _copy(output, log):
            watched.remove(output)
        if wake in ready:
            os.read(wake, 4096)
            code = _reap(child)
    os.set_blocking(output, False)
    while output in watched and _copy(output, log):
        pass
    return code


def _copy(output: int, log: Log) -> bool:
    try:
        data = os.read(output, 65536)
    except BlockingIOError:
        return False
    log.write(data)
    return bool(data)


def _reap(child: int) -> int | None:
    """Reaps every child that has ended; returns the exit code of ``child`` (negative for a signal) if it is one of them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def end_descendants(grace_seconds: float) -> None:
    """Ends all remaining descendants of the command, by SIGTERM, then SIGKILL, and reaps them.

    This includes processes without the tag in their environment, since orphans become children of this process.
    """
    terminated: set[int] = set()
    begin = time.monotonic()
    while _reap(0) is None and (children := _children()) and time.monotonic() < begin + grace_seconds + 5.0:
        grace_is_over = time.monotonic() >= begin + grace_seconds
        send(children if grace_is_over else children - terminated, signal.SIGKILL if grace_is_over else signal.SIGTERM)
        terminated |= children
        time.sleep(SCAN_SECONDS)


def _children() -> set[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return set(map(int, file.read().split()))
    except OSError:  # not supported by this kernel
        return set()


def _note_end(path: Path, code: int) -> None:
    """Writes exit code and time atomically. The time is that of the machine's monotonic clock, so that ranks can be ordered by
    it.
    """
    draft = path.with_suffix(".exit.draft")
    try:
        draft.write_text(f"{code} {time.monotonic():.6f}\n", encoding="ascii")
        draft.replace(path)
    except OSError as error:
        print(f"{path}: cannot be written: {error.strerror}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
