"""Parsers of other frameworks, each installed in its own folder and run as a process, never imported together with our packages."""

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
"""Where ``make frameworks`` installs each ``NAME.txt`` of this folder, without torch, which is shared with the project."""

SECONDS = 600

REQUIRED = {"axolotl": ("llama_factory",), **dict.fromkeys(("accelerate", "hf_trainer", "llama_factory"), ("deepspeed",))}
"""Further folders of packages that a parser needs."""


class Reader:
    """A process that has imported a parser and forks for each question, so that questions do not affect each other."""

    def __init__(self, name: str, needed: Sequence[Path]) -> None:
        self.asked = (name, tuple(needed))
        self._folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, needed)), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", str(HERE / "forked.py"), str(HERE / f"{name}.py")]  # this folder has the packages' names
        pipe = subprocess.PIPE
        with (Path(self._folder.name) / "errors").open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)

    def answer(self, arguments: Sequence[str]) -> Any:
        """The JSON in the last line of the parser's output."""
        output, errors = (Path(self._folder.name) / name for name in ("output", "errors"))
        replies, questions = self._process.stdout, self._process.stdin
        assert replies is not None
        assert questions is not None
        with contextlib.suppress(BrokenPipeError):  # its imports failed; the assertion below shows their error
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
"""The last used reader: several of them need too much memory."""


def parsed(name: str, arguments: Sequence[str]) -> Any:
    """The JSON in the last line that ``NAME.py`` of this folder prints.

    Raises:
        AssertionError: the parser failed; with its error output.
    """
    needed = [INSTALLED / folder for folder in (name, *REQUIRED.get(name, ()))]
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
