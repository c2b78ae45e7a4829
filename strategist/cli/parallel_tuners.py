"""Parallel tuners: starts the same tune command again as silent processes on the same study."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from strategist.cli import render
from strategist.cli.exit_codes import USER_ERROR
from strategist.executors.processes import die_with_parent

SAID = ("--json", "--json-lines", "--quiet")
"""Options that say what a tuner prints."""

END_SECONDS = 60.0
"""Until a tuner that was told to has ended its trial and given back its claim."""


@contextmanager
def extra_tuners(count: int, arguments: Sequence[str]) -> Iterator[None]:
    """``count`` more tuners of the command line ``arguments``, which end when their study does, or when this one is interrupted."""
    plain = [argument for argument in arguments if argument not in SAID]
    command = [sys.executable, "-m", "strategist.cli.main", *plain, "--quiet", "--at-once", "1"]
    tuners = [_tuner(command) for _ in range(count)]
    try:
        yield
    except BaseException:
        for tuner in tuners:
            tuner.terminate()
        raise
    finally:
        for tuner in tuners:
            _told(tuner)


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


def _told(tuner: "subprocess.Popen[str]") -> None:
    """Waits for its end, and says why it had to."""
    try:
        _, said = tuner.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        tuner.kill()
        _, said = tuner.communicate()
    if tuner.returncode == USER_ERROR:
        render.print_note(f"a tuner beside this one ended: {said.strip()}")
