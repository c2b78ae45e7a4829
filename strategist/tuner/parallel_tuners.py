"""Parallel tuners: more processes that tune the same study and end with this process."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from strategist.executors.processes import die_with_parent

END_SECONDS = 60.0
"""Seconds for a terminated tuner to end its trial and release its claim."""


@contextmanager
def parallel_tuners(command: Sequence[str], count: int, on_end: Callable[[int, str], None]) -> Iterator[None]:
    """Runs ``count`` more tuners with this command, which must print nothing to stdout.

    They end when their study ends or when this process is interrupted. ``on_end`` gets the exit code and stderr of each.
    """
    tuners = [_tuner(command) for _ in range(count)]
    try:
        yield
    except BaseException:
        for tuner in tuners:
            tuner.terminate()
        raise
    finally:
        for tuner in tuners:
            on_end(*_exit_code_and_errors(tuner))


def _tuner(command: Sequence[str]) -> "subprocess.Popen[str]":
    """Starts a tuner in its own session: an interrupt from the terminal would reach it a second time and end it before it
    releases its claim.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, signal.SIGTERM),  # a tuner ends its trial when it gets SIGTERM
    )


def _exit_code_and_errors(tuner: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and stderr of a tuner, once it has ended; it is killed after ``END_SECONDS``."""
    try:
        _, error_text = tuner.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        tuner.kill()
        _, error_text = tuner.communicate()
    return tuner.returncode, error_text
