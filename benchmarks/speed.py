"""Speed of answers, also beside other estimators: python benchmarks/speed.py [docs/figures.md]

Benchmarks that print lines `quantity: figure` run one after the other; with a page, their lines become its table.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
from between import put

BENCHMARKS = ("startup", "pricing", "growth", "simulation", "peers")


def lines_of(benchmark: str) -> Iterator[str]:
    """The lines that a benchmark prints, as it prints them."""
    command = [sys.executable, str(Path(__file__).with_name(f"{benchmark}.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield from map(str.rstrip, process.stdout or ())
    if process.returncode:
        sys.exit(f"benchmarks/{benchmark}.py failed")


def machine() -> str:
    """When and on what this runs, and beside how much else."""
    model = next((line.partition(": ")[2] for line in _cpu_lines() if line.startswith("model name")), platform.machine())
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    return (
        f"{date.today()}, one of {os.cpu_count()} cores ({model}), {versions}, load average {os.getloadavg()[0]:.1f} at the start"
    )


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def main() -> None:
    """Prints all lines; with a page, writes them into it."""
    measured = f"Processor time, {machine()}. Other programs slow all figures down; ratios less."
    print(measured)
    table = ["| what | figure | how |", "| --- | --- | --- |"]
    for benchmark in BENCHMARKS:
        for line in lines_of(benchmark):
            print(line, flush=True)
            quantity, _, figure = line.partition(": ")
            table.append(f"| {quantity} | {figure} | `benchmarks/{benchmark}.py` |")
    if sys.argv[1:]:
        put(Path(sys.argv[1]), "bench", "\n".join([measured, "", *table]))


if __name__ == "__main__":
    main()
