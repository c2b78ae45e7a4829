"""Parallel tuners: more processes that work on the same study, and end with this one."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from strategist.executors.processes import die_with_parent

END_SECONDS = 60.0
"""Until a tuner that was told to has ended its trial and given back its claim."""


@contextmanager
def parallel_tuners(command: Sequence[str], count: int, on_end: Callable[[int, str], None]) -> Iterator[None]:
    """``count`` more tuners, each of this silent command, which end when their study does, or when this one is interrupted;
    ``on_end`` hears each one's exit code and what it said."""
    tuners = [_tuner(command) for _ in range(count)]
    try:
        yield
    except BaseException:
        for tuner in tuners:
            tuner.terminate()
        raise
    finally:
        for tuner in tuners:
            on_end(*_ended(tuner))


def _tuner(command: Sequence[str]) -> "subprocess.Popen[str]":
    """In a session of its own, since a tuner that is interrupted twice ends before it has given back its claim."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_interrupted,
    )


def _interrupted() -> None:
    """With this process, however it ends: the tuner then ends its trial."""
    die_with_parent(signal.SIGTERM)


def _ended(tuner: "subprocess.Popen[str]") -> tuple[int, str]:
    """Waits for its end."""
    try:
        _, said = tuner.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        tuner.kill()
        _, said = tuner.communicate()
    return tuner.returncode, said
