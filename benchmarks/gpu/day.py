"""On the device: cases one after the other, each in a process of its own, as long as there is time; a JSON line for each."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu.case import Case, of_names, read_cases
from gpu.packages import ROOT

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.plan import Plan

CLOCKS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_event_reasons.active")
LOG_CHARACTERS, OUTPUT_CHARACTERS = 3_000, 60_000


@dataclass(frozen=True, kw_only=True)
class Started:
    """A case's process, which imports what it needs and waits for its turn."""

    case: Case
    folder: Path
    process: subprocess.Popen[bytes]


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """How a case's process ended: its exit code, None where its time ran out, and what it printed."""

    code: int | None
    text: str
    seconds: float


def run(session: str, folder: Path, out: Path, budget_seconds: float, only: Collection[str] | None = None) -> None:
    """Writes ``<session>.jsonl`` into ``out``, a line as soon as a case has ended, and one for each that had no time left.

    Cases that have a row without an error there are not run again, unless ``only`` names them.

    Raises:
        FileError: no case was prepared in ``folder``.
        InputError: no case of the session has such a name.
    """
    end = time.monotonic() + budget_seconds
    file = out / f"{session}.jsonl"
    cases = _chosen(read_cases(folder, session), file, only)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, file.open("a", encoding="utf-8") as rows:
        for case, waiting in one_ahead(cases, Path(name), end):
            left = end - time.monotonic()
            if waiting is None or left < case.expected_seconds:
                if waiting is not None:
                    kill(waiting)
                row = {**planned_row(case), "error": f"not started: {left:.0f} s left of {budget_seconds:.0f}"}
            else:
                row = measured(replace(waiting, case=replace(case, limit_seconds=min(case.limit_seconds, left))))
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            os.fsync(rows.fileno())
            shown = row["error"] or f"{row['seconds']:.0f} s"
            print(f"{case.name:36}{shown[:200]}", flush=True)


def one_ahead(cases: Sequence[Case], folder: Path, end: float) -> Iterator[tuple[Case, Started | None]]:
    """The cases in turn, with their processes. Imports take seconds, so each is started, on cores that are free, as the one before
    gets its turn; None for those that have no time left before ``end``.
    """
    processes = (
        (case, started(case, folder / str(number)) if case.expected_seconds <= end - time.monotonic() else None)
        for number, case in enumerate(cases)
    )
    current = next(processes, None)
    while current is not None:
        following = next(processes, None)
        yield current
        current = following


def _chosen(cases: Sequence[Case], file: Path, only: Collection[str] | None) -> list[Case]:
    if only:
        return of_names(cases, only)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    done = {row["case"] for row in rows if not row["error"]}
    return [case for case in cases if case.name not in done]


def planned_row(case: Case) -> dict[str, Any]:
    """The part of a row that is known before the case runs."""
    plan = case.plan
    return {
        "case": case.name,
        "session": case.session,
        "plan_id": plan.id if plan else None,
        "predicted": predicted(plan) if plan else None,
        "simulated": codec.encode(case.simulated) if case.simulated else None,
        "not_simulated": case.not_simulated,
    }


def predicted(plan: Plan) -> dict[str, Any]:
    """Bytes by part, the peak, and seconds by part of a step."""
    estimate = plan.estimate
    return {
        "memory": codec.encode(estimate.memory),
        "peak_memory_bytes": estimate.peak_memory_bytes,
        "time": codec.encode(estimate.time),
        "step_seconds": estimate.step_seconds,
    }


def measured(waiting: Started) -> dict[str, Any]:
    """The row of a case; one that fails is a row with an ``error``."""
    case, folder = waiting.case, waiting.folder
    before = clocks()
    ended = finished(waiting)
    row = {**planned_row(case), "seconds": round(ended.seconds, 2), "clocks": {"before": before, "after": clocks()}}
    record, result = read(folder / "rank-0.json"), read(folder / "result.json") or read(folder / "machine.json")
    allocator = read(folder / "allocator.json")
    row |= {"versions": (record or result or {}).get("versions"), "measured": record or result, "allocator": allocator}
    if ended.code is None:
        error = f"ended after {case.limit_seconds:.0f} s"
    elif record and record["outcome"] != "ok":
        error = f"{record['outcome']} in {record['phase']}: {record['message']}"
    else:
        error = f"exit code {ended.code}" if ended.code else ""
    kept = LOG_CHARACTERS if record or result else OUTPUT_CHARACTERS
    return {**row, "error": error, "log": ended.text[-kept:] if error or not (record or result) else ""}


def started(case: Case, folder: Path) -> Started:
    """Its process, which begins with the case at a line on its standard input."""
    folder.mkdir(parents=True)
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "benchmarks/gpu/case_process.py", *arguments(case, folder)],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=rank_environment(case),
            start_new_session=True,
        )  # fmt: skip
    return Started(case=case, folder=folder, process=process)


def finished(waiting: Started) -> ProcessResult:
    """Gives the process its turn, and ends it with all that it started when it is over or its time has run out."""
    begin = time.monotonic()
    process = waiting.process
    try:
        process.communicate(b"\n", waiting.case.limit_seconds)
    except subprocess.TimeoutExpired:
        code: int | None = None
    else:
        code = process.returncode
    seconds = time.monotonic() - begin
    kill(waiting)
    text = (waiting.folder / "log").read_text("utf-8", "replace").replace(f"{ROOT}/", "")
    return ProcessResult(code=code, text=text, seconds=seconds)


def kill(waiting: Started) -> None:
    """Ends the process, and all that it started."""
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        os.killpg(waiting.process.pid, signal.SIGKILL)
    waiting.process.wait()


def arguments(case: Case, folder: Path) -> list[str]:
    """After the interpreter."""
    plan, settings = folder / "plan.json", folder / "settings.json"
    if case.plan is not None:
        codec.save(case.plan, plan)
        codec.save(case.settings, settings)
    if case.arguments:
        return [word.replace("{out}", str(folder)).replace("{plan}", str(plan)) for word in case.arguments]
    shadow = [] if case.rank is None else ["--shadow", str(case.rank)]
    return ["benchmarks/gpu/rank.py", str(plan), "--out", str(folder), "--settings", str(settings), *shadow]


def rank_environment(case: Case) -> Mapping[str, str]:
    """The environment of a single rank."""
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    threads = {} if case.plan is None or case.plan.cluster.device.kind == "cuda" else {"OMP_NUM_THREADS": "1"}
    return {**os.environ, **alone, **threads, **(environment(case.plan) if case.plan else {})}


def clocks() -> dict[str, str] | None:
    """What the driver says; None where there is none."""
    query = ["nvidia-smi", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader,nounits"]
    try:
        line = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    return dict(zip(CLOCKS, (word.strip() for word in line.split(",")), strict=False))


def read(path: Path) -> dict[str, Any] | None:
    """A JSON file; None where it is not there, or torn."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
