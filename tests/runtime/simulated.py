"""Simulates plans on processes forked from one that has imported torch, as a process stays the rank that it simulates.

``python -m runtime.simulated RANK FOLDER...`` simulates that rank of each ``FOLDER/plan.json`` as the command does: what it showed
lies in ``FOLDER/simulated.json``, its exit code in ``FOLDER/code``, its errors in ``FOLDER/errors``. A folder whose name ends in
``whole`` is traced whole.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import strategist_runtime.simulate.rank  # noqa: F401 - what every process would import
from strategist_runtime.simulate.__main__ import main as simulate

AT_ONCE = 2


def main(rank: str, folders: Sequence[Path]) -> None:
    running: dict[int, Path] = {}
    for folder in folders:
        if len(running) == AT_ONCE:
            _end(running)
        if (child := os.fork()) == 0:
            _alone(rank, folder)
        running[child] = folder
    while running:
        _end(running)


def _end(running: dict[int, Path]) -> None:
    child, status = os.wait()
    (running.pop(child) / "code").write_text(str(os.waitstatus_to_exitcode(status)))


def _alone(rank: str, folder: Path) -> None:
    errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT)
    os.dup2(errors, 2)
    whole = ["--whole"] if folder.name.endswith("whole") else []
    simulate([str(folder / "plan.json"), "--rank", rank, "--out", str(folder / "simulated.json"), *whole])
    os._exit(1)  # a command leaves by itself


if __name__ == "__main__":
    main(sys.argv[1], [Path(folder) for folder in sys.argv[2:]])
