"""Other systems' own parsers, each in a folder of its own, started as a process: none is imported beside our own packages."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
INSTALLED = HERE.parents[2] / ".frameworks"
"""Where ``make frameworks`` puts each ``NAME.txt`` of this folder, without torch, which is the project's own."""

SECONDS = 240

BESIDE = {"axolotl": ("llama_factory",)}
"""Folders that hold what a parser needs as well as another."""


def parsed(name: str, arguments: Sequence[str], folders: Sequence[str] = ()) -> Any:
    """What ``NAME.py`` of this folder prints as JSON in its last line; its parser runs with what ``folders`` hold as well.

    Raises:
        AssertionError: the parser ended with an error; with what it said.
    """
    needed = [INSTALLED / folder for folder in (name, *folders, *BESIDE.get(name, ()))]
    if missing := next((path for path in needed if not path.exists()), None):
        pytest.skip(f"{missing.name} is not installed: make frameworks")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, needed)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(HERE / f"{name}.py"), *arguments]  # this folder has files of the packages' names
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
