"""How long the tests take, and whether they hold each time: the tables of docs/testing.md.

python benchmarks/suite.py again [--runs 20]     the tests of `make test`, every second run beside a busy loop on each core
python benchmarks/suite.py clone [--runs 3]      `make test` and `make test-all` in fresh clones of the last commit
python benchmarks/suite.py folders               the tests of each folder alone
python benchmarks/suite.py page                  writes the tables

A run is kept as soon as it ends, in build/suite, so that the next call goes on with those that are missing for this commit.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from heapq import nlargest
from pathlib import Path
from xml.etree import ElementTree

from between import put

from strategist.report.reference.markdown import code, table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "testing.md"
KEPT = ROOT / "build" / "suite"
PARALLEL = ("--numprocesses", "2", "--dist", "loadfile")
SLOWEST = 30
LARGE = ("tests/cli", "tests/runtime")
"""Folders whose tests are run with two workers."""

LIMITS = {True: 60, False: 10}
"""Seconds that a folder's tests may take: where they start processes that import torch, and where they do not."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a command and how it ended."""

    command: str
    commit: str
    number: int
    busy: bool
    seconds: float
    tests: int
    failed: Sequence[str]
    processor_seconds: float = 0.0

    @property
    def place(self) -> Path:
        """Where it is kept; its report and its output lie beside it."""
        return KEPT / self.commit / f"{self.command.replace(' ', '-').replace('/', '-')}-{self.number}.json"


def main() -> None:
    """Runs what is missing, or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("again", "clone", "folders", "page"))
    parser.add_argument("--runs", type=int, help="how many: 20, or 3 of each command in clones")
    options = parser.parse_args()
    commit = _git("rev-parse", "--short", "HEAD")
    if options.what == "again":
        again(commit, options.runs or 20)
    elif options.what == "clone":
        clones(commit, options.runs or 3)
    elif options.what == "folders":
        for folder in folders():
            timed(f"pytest {folder}", commit, 1, (sys.executable, "-m", "pytest", *folder.split()), ROOT)
    else:
        write(commit)


def again(commit: str, count: int) -> None:
    """Runs the fast tests ``count`` times."""
    for number in range(1, count + 1):
        with busy_loops(os.cpu_count() or 1 if number % 2 == 0 else 0):
            timed("pytest", commit, number, (sys.executable, "-m", "pytest", *PARALLEL), ROOT, busy=number % 2 == 0)


def clones(commit: str, count: int) -> None:
    """Runs both commands in ``count`` clones; installing is a command of its own."""
    for number in range(1, count + 1):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "project"
            subprocess.run(("git", "clone", "--quiet", str(ROOT), str(place)), check=True)
            for command in ("make .venv/ready", "make test", "make test-all"):
                timed(command, commit, number, command.split(), place)


def timed(name: str, commit: str, number: int, command: Iterable[str], place: Path, *, busy: bool = False) -> None:
    """Runs a command unless a run of it is kept already, and keeps what it showed."""
    run = Run(command=name, commit=commit, number=number, busy=busy, seconds=0.0, tests=0, failed=())
    report = run.place.with_suffix(".xml")
    report.parent.mkdir(parents=True, exist_ok=True)
    if run.place.exists():
        return
    report.unlink(missing_ok=True)
    environment = {**os.environ, "PYTEST_ADDOPTS": f"--junitxml={report}", "OMP_NUM_THREADS": "1"}
    begin, before = time.monotonic(), processor_seconds()
    with report.with_suffix(".log").open("w") as log:
        ended = subprocess.run([*command], cwd=place, env=environment, stdout=log, stderr=log, check=False)
    seconds = time.monotonic() - begin
    durations, failed = read(report) if report.exists() else ({}, ())
    if ended.returncode and not failed:
        failed = (f"exit code {ended.returncode}",)
    spent = round(processor_seconds() - before, 1)
    found = replace(run, seconds=round(seconds, 1), tests=len(durations), failed=failed, processor_seconds=spent)
    found.place.write_text(json.dumps(asdict(found)), encoding="utf-8")
    print(f"{name} {number}{' beside busy loops' if busy else ''}: {seconds:.0f} s, {len(failed)} failed", *failed, flush=True)


def processor_seconds() -> float:
    """Of all processes that this one has started and that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def folders() -> Iterator[str]:
    """What is given to pytest for the tests of one package: its folder, and two workers for the largest ones."""
    for folder in sorted({f"{path.parent.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("test_*.py")} - {"tests"}):
        yield " ".join((folder, *(PARALLEL if folder in LARGE else ())))


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Processes that do nothing but compute."""
    started = [subprocess.Popen((sys.executable, "-c", "while True: pass")) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def read(report: Path) -> tuple[dict[str, float], tuple[str, ...]]:
    """Seconds of each test, set-up and tear-down with it, and those that failed."""
    durations, failed = dict[str, float](), []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        durations[name] = durations.get(name, 0.0) + float(case.get("time", "0"))
        if any(child.tag in ("failure", "error") for child in case):
            failed.append(name)
    return durations, tuple(failed)


def write(commit: str) -> None:
    """Writes the tables of what was run."""
    kept = [Run(**json.loads(path.read_text(encoding="utf-8"))) for path in (KEPT / commit).glob("*.json")]
    of_folders = [run for run in kept if run.command.startswith("pytest ")]
    runs = sorted((run for run in kept if run not in of_folders), key=lambda run: (run.command, run.number))
    rows = [
        (
            code(run.command),
            f"{run.number}",
            "yes" if run.busy else "",
            f"{run.seconds / 60:.1f}",
            f"{run.tests:,}",
            f"{len(run.failed)}",
        )
        for run in runs
    ]
    put(PAGE, "runs", table(("command", "run", "beside busy loops", "minutes", "tests", "failed"), rows), "suite")
    reports = [run.place.with_suffix(".xml") for run in runs if run.command in ("pytest", "make test") and not run.busy]
    if reports:
        put(PAGE, "slowest", slowest(read(reports[-1])[0]), "suite")
    if of_folders:
        put(PAGE, "folders", by_folder(of_folders), "suite")


def by_folder(runs: Iterable[Run]) -> str:
    """What each folder takes, beside its limit: that of ranks where a test of it has the mark ``torch``."""
    rows = []
    for run in sorted(runs, key=lambda run: run.command):
        places = run.command.split()[1]
        command = (sys.executable, "-m", "pytest", "--collect-only", "-m", "torch and not (gpu or full)", places)
        limit = LIMITS[subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0]
        cells = (f"{run.tests:,}", f"{run.processor_seconds:.0f}", f"{limit}", f"{len(run.failed)}")
        rows.append((code(run.command), *cells))
    return table(("command", "tests", "processor seconds", "limit", "failed"), rows)


def slowest(durations: Mapping[str, float]) -> str:
    """The longest, the cases of one test together."""
    cases = defaultdict[str, list[float]](list)
    for name, seconds in durations.items():
        cases[name.partition("[")[0]].append(seconds)
    longest = nlargest(SLOWEST, cases.items(), key=lambda item: sum(item[1]))
    rows = [(code(name), f"{len(seconds)}", f"{sum(seconds):.0f}") for name, seconds in longest]
    return table(("test", "cases", "seconds"), rows)


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
