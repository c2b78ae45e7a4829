"""Processor time of a cold plan at the shell, beside that of its imports alone: python benchmarks/startup.py"""

import os
import resource
import subprocess
import sys
from pathlib import Path

RUNS = 11
PLAN = [str(Path(sys.executable).with_name("strategist")), "plan", "--model", "32b", "--gpus", "8x24GB"]
IMPORTS = [sys.executable, "-c", "import numpy, yaml, jsonschema, rich.console"]


def seconds(command: list[str]) -> float:
    """Processor time of one process, output thrown away; with bytecode, which installed packages have, and on one core."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = _spent()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=kept | {"OMP_NUM_THREADS": "1"})
    return _spent() - begin


def _spent() -> float:
    """Processor seconds of all processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Both are measured in turns. The least of each counts, which a busy machine disturbs least."""
    pairs = [(seconds(PLAN), seconds(IMPORTS)) for _ in range(RUNS)]
    plan, imports = map(min, zip(*pairs, strict=True))
    command = f"`strategist {' '.join(PLAN[1:])}`"
    print(
        f"{command}, whole process: {plan:.2f} s, {plan / imports:.1f} times its imports alone ({imports:.2f} s); least of {RUNS}"
    )


if __name__ == "__main__":
    main()
