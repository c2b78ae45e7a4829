"""Other systems' own parsers, each in a folder of its own, started as a process: none is imported beside our own packages."""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
INSTALLED = HERE.parents[2] / ".frameworks"
"""Where ``make frameworks`` puts each ``NAME.txt`` of this folder, without torch, which is the project's own."""

SECONDS = 600

BESIDE = {"axolotl": ("llama_factory",), **dict.fromkeys(("accelerate", "hf_trainer", "llama_factory"), ("deepspeed",))}
"""Folders that hold what a parser needs as well as another."""


class Reader:
    """A process that has imported a parser, and forks for each question, so that no question sees what another one left."""

    def __init__(self, name: str, needed: Sequence[Path]) -> None:
        self.asked = (name, tuple(needed))
        self._folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, needed)), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", str(HERE / "forked.py"), str(HERE / f"{name}.py")]  # this folder has the packages' names
        pipe = subprocess.PIPE
        with (Path(self._folder.name) / "errors").open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)

    def answer(self, arguments: Sequence[str]) -> Any:
        """What the parser prints as JSON in its last line."""
        output, errors = (Path(self._folder.name) / name for name in ("output", "errors"))
        replies, questions = self._process.stdout, self._process.stdin
        assert replies is not None
        assert questions is not None
        with contextlib.suppress(BrokenPipeError):  # its imports failed, and say so below
            questions.write(json.dumps([list(arguments), str(output), str(errors)]) + "\n")
            questions.flush()
        ready, _, _ = select.select([replies], [], [], SECONDS)
        ended = replies.readline().strip() if ready else f"nothing in {SECONDS} s"
        assert ended == "0", f"{self.asked[0]} ended with {ended or 'nothing'}: {errors.read_text(encoding='utf-8')[-3000:]}"
        return json.loads(output.read_text(encoding="utf-8").strip().splitlines()[-1])

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._folder.cleanup()


_OPEN: list[Reader] = []
"""The reader that was asked last: they take too much memory to keep several."""


def parsed(name: str, arguments: Sequence[str]) -> Any:
    """What ``NAME.py`` of this folder prints as JSON in its last line.

    Raises:
        AssertionError: the parser ended with an error; with what it said.
    """
    needed = [INSTALLED / folder for folder in (name, *BESIDE.get(name, ()))]
    if missing := next((path for path in needed if not path.exists()), None):
        pytest.skip(f"{missing.name} is not installed: make frameworks")
    if not _OPEN or _OPEN[0].asked != (name, tuple(needed)):
        _close()
        _OPEN.append(Reader(name, needed))
    try:
        return _OPEN[0].answer(arguments)
    except AssertionError:
        _close()
        raise


def _close() -> None:
    while _OPEN:
        _OPEN.pop().close()


atexit.register(_close)
