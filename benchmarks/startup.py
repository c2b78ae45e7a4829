"""Cold wall time of a plan at the shell, beside that of its imports alone: python benchmarks/startup.py"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

RUNS = 11
PLAN = [str(Path(sys.executable).with_name("strategist")), "plan", "--model", "32b", "--gpus", "8x24GB"]
IMPORTS = [sys.executable, "-c", "import numpy, yaml, jsonschema, rich.console"]


def seconds(command: list[str]) -> float:
    """Wall time of one process, output thrown away; with bytecode, which installed packages have, and on one core."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=kept | {"OMP_NUM_THREADS": "1"})
    return perf_counter() - begin


def main() -> None:
    """Both are measured in turns, so that a busy machine slows both alike; the ratio is that of neighbours."""
    pairs = [(seconds(PLAN), seconds(IMPORTS)) for _ in range(RUNS)]
    plan, imports = (median(column) for column in zip(*pairs, strict=True))
    ratio = median(first / second for first, second in pairs)
    print(f"strategist {' '.join(PLAN[1:])}: {plan:.3f} s; imports alone: {imports:.3f} s; ratio {ratio:.2f} (medians of {RUNS})")


if __name__ == "__main__":
    main()
