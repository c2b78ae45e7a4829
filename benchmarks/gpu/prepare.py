"""Before a day on a GPU, without one: every case planned, priced and simulated, and the packages that the machine lacks."""

import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from gpu.case import Case, of_names
from gpu.cases import all_cases, sizes, with_memory_limit
from gpu.packages import ROOT
from strategist_runtime.simulate.rank import simulate

from strategist.contract import codec
from strategist.errors import FileError, StrategistError

WHEELS = (
    "pyyaml", "jsonschema", "jsonschema-specifications", "referencing", "rpds-py", "attrs", "typing-extensions", "safetensors",
    "torchao", "pytest-timeout", "pytest-xdist", "execnet", "torchtitan==0.2.2",
)  # fmt: skip
"""Of the project's pinned versions unless said otherwise; the machine has torch, triton, numpy, scipy, rich, pytest, hypothesis."""


def prepare(folder: Path, gpu: str, only: Collection[str] | None, python: str | None) -> None:
    """Fills ``folder``, which must be new, with the cases (``only`` those of these names), and with wheels for a ``python``.

    Raises:
        FileError: something is there already.
        InputError: no case has such a name.
    """
    cases = of_names(all_cases(sizes(gpu)), only)
    if folder.exists() and any(folder.iterdir()):
        raise FileError(folder, "holds files already; name a new folder")
    (folder / "cases").mkdir(parents=True)
    with ProcessPoolExecutor(max_workers=2, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        for number, case in enumerate(pool.map(simulated, cases)):
            codec.save(with_memory_limit(case), folder / "cases" / f"{number:02}-{case.name.replace(' ', '-')}.json")
            print(f"{case.session:7}{case.name:36}{case.not_simulated}", flush=True)
    if python:
        collect(folder / "wheels", python)


def simulated(case: Case) -> Case:
    """With what the simulation says of its plan; the process stays the rank that it was."""
    if case.plan is None:
        return case
    try:
        return replace(case, simulated=simulate(case.plan, case.rank or 0))
    except StrategistError as error:
        return replace(case, not_simulated=str(error))


def collect(folder: Path, python: str) -> None:
    """Wheels for a Python such as 3.12, of the project's pinned versions."""
    where = ("--only-binary", ":all:", "--no-deps", "--python-version", python, "--dest", str(folder))
    pinned = ("-c", str(ROOT / "constraints.txt"))
    subprocess.run([sys.executable, "-m", "pip", "download", "-qq", *where, *pinned, *WHEELS], check=True)
