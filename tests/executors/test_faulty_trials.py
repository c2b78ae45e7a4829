"""Faults of trials in numbers: each is noticed, gets its class, and leaves nothing."""

import gc
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from chaos import Chaos
from executors.messes import MESSES, places

from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import tagged

SETTINGS = TrialSettings(steps=4, init_timeout_seconds=30.0, step_timeout_seconds=30.0, wall_timeout_seconds=60.0)
QUICK = replace(SETTINGS, init_timeout_seconds=6.0, step_timeout_seconds=1.0)
DEATHS = ("kill", "exit137", "segv", "raise", "abort")
HANGS = ("sleep", "hold-the-gil", "stop", "deaf")
PHASES = ("spawn", "init", "build", "warm-up", "measure")
OTHERS = (
    "hang-in-init", "hang", "hang-deaf", "stopped", "killed", "segfault", "raises", "leaves-early", "leaves-nothing", "oom",
    "oom-without-record", "oom-code", "nan", "refused", "nan-figures", "torn", "zero-seconds", "noisy", "grandchild",
    "grandchild-and-hang", "never-starts", "hang-at-exit", "killed-once", "crash-that-leaves-a-deaf-peer",
)  # fmt: skip

Execute = Callable[..., tuple[Measurement, Path]]


@pytest.fixture
def execute(make_executor: Callable[..., LocalExecutor], plan: Plan, tmp_path: Path) -> Iterator[Execute]:
    """``execute(fault, settings)``: what was measured, and the trial's folder."""
    number = iter(range(10**6))

    def run(fault: str, settings: TrialSettings = SETTINGS) -> tuple[Measurement, Path]:
        folder = tmp_path / f"{next(number)}"
        return make_executor(fault).execute(plan, folder, settings), folder

    return run


def told(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().split() if (folder / name).exists() else []


def left(folder: Path) -> list[str]:
    """What is there of the trial still, in words."""
    processes = [f"process {pid}" for pid, tag in tagged("").items() if f".{os.getpid()}." in tag]
    hidden = [f"process {pid}" for pid in told(folder, "pids") if Path(f"/proc/{pid}").exists()]
    ports = [f"port {port}" for port in told(folder, "ports") if _listens(int(port))]
    paths = [path for path in told(folder, "paths") if os.path.lexists(path)]
    return processes + hidden + ports + paths + [f"folder {place}" for place in places(os.getpid())]


def _listens(port: int) -> bool:
    with socket.socket() as ours:
        return ours.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.chaos("Trials", "a dead rank is noticed, with its class")
def test_a_dead_rank_is_noticed(execute: Execute, chaos: Chaos) -> None:
    chances, seconds, wrong = chaos.random(), [], []
    cases = [(death, phase) for death in DEATHS for phase in PHASES]
    for death, phase in chances.sample(cases, 2) if not chaos.weekly else cases * 4:
        measurement, folder = execute(f"{death}@{phase}")
        seconds.append(time.monotonic() - float(told(folder, "struck")[0]))
        if (measurement.outcome, measurement.evidence.rank) != (Outcome.CRASH, 1) or left(folder):
            wrong.append((death, phase, measurement.outcome, measurement.evidence, left(folder)))
    assert not wrong
    chaos.found(f"{len(seconds)} deaths of {len(DEATHS)} kinds in {len(PHASES)} phases, {len(wrong)} of a wrong class")
    chaos.found(f"stored {worst(seconds)} after (3 s asked)")


def worst(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s in the median and {max(seconds):.2f} s at most"


@pytest.mark.chaos("Trials", "a hang is noticed")
def test_a_hang_is_noticed(execute: Execute, chaos: Chaos) -> None:
    chances, late, missed = chaos.random(), [], []
    cases = [(hang, phase) for hang in HANGS for phase in ("init", "measure")]
    for hang, phase in [(chances.choice(HANGS), "measure")] if not chaos.weekly else cases * 5:
        begun = time.monotonic()
        measurement, folder = execute(f"{hang}@{phase}", QUICK if phase == "init" else replace(SETTINGS, step_timeout_seconds=1.0))
        since = begun + QUICK.init_timeout_seconds if phase == "init" else moved(folder) + QUICK.step_timeout_seconds
        late.append(time.monotonic() - since)
        why = "not ready in time" if phase == "init" else "no rank moved"  # and not that the whole took too long
        if measurement.outcome is not Outcome.TIMEOUT or why not in measurement.evidence.message or left(folder):
            missed.append((hang, phase, measurement.outcome, measurement.evidence, left(folder)))
    assert not missed
    chaos.found(f"{len(late)} hangs of {len(HANGS)} kinds, {len(missed)} missed")
    chaos.found(f"ended and swept {worst(late)} after the deadline (1 s asked)")


def moved(folder: Path) -> float:
    """When a rank moved last, in monotonic seconds."""
    last = max(path.stat().st_mtime for path in folder.glob("rank-*.phase"))
    return last - time.time() + time.monotonic()


@pytest.mark.chaos("Trials", "a rank ten times as slow is not a hang")
def test_a_slow_rank_is_left_alone(execute: Execute, chaos: Chaos) -> None:
    tries = chaos.size(1, 20)
    patient = replace(QUICK, step_timeout_seconds=2.0)  # less than all its steps, more than one on a busy machine
    ended = [execute("slow-rank", patient)[0].outcome for _ in range(tries)]
    false = sum(outcome is not Outcome.OK for outcome in ended)
    assert false == 0
    chaos.found(f"{tries} trials with steps ten times as long, {false} ended for it")


@pytest.mark.chaos("Trials", "nothing is left of a trial with a fault")
def test_nothing_is_left(execute: Execute, chaos: Chaos) -> None:
    chances, trials, behind = chaos.random(), chaos.size(4, 200), []
    faults = [f"{name}@{chances.choice(PHASES[2:])}" for name in MESSES] + list(OTHERS)
    for fault in schedule(faults, trials, chances):
        measurement, folder = execute(fault, QUICK)
        if found := left(folder):
            behind.append((fault, measurement.outcome, found))
    assert not behind
    chaos.found(f"{trials} trials with faults of {len(faults)} kinds")
    chaos.found(f"left at once: {len(behind)} processes, ports, temporary folders and files of shared memory")


def schedule(faults: list[str], count: int, chances: random.Random) -> Iterator[str]:
    """Each as often as the others, in any order."""
    deck: list[str] = []
    for _ in range(count):
        deck = deck or chances.sample(faults, len(faults))
        yield deck.pop()


GLOO = str(Path(__file__).with_name("gloo_rank.py"))
GLOO_DEATHS, GLOO_HANGS = ("kill", "segv", "exit137", "throw"), ("mismatch", "skip", "hold-the-gil", "stop", "missing")
GLOO_SETTINGS = TrialSettings(steps=12, init_timeout_seconds=20.0, step_timeout_seconds=2.0, wall_timeout_seconds=120.0)


def by_gloo(plan: Plan, folder: Path, fault: str, at: int) -> tuple[Measurement, float]:
    """What torchrun's ranks with this fault at a step were measured as, and when it was stored."""
    executor = LocalExecutor(program=(sys.executable, GLOO, fault, str(at)))
    return executor.execute(plan, folder, GLOO_SETTINGS), time.monotonic()


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.chaos("Trials", "faults of real ranks, with torchrun and gloo")
def test_faults_of_real_ranks(plan: Plan, tmp_path: Path, chaos: Chaos) -> None:
    each, chances = chaos.size(1, 5), chaos.random()
    after: dict[str, list[float]] = {"death": [], "hang": []}
    wrong, slow = [], 0
    faults = (*GLOO_DEATHS, *GLOO_HANGS, "slow") * each if chaos.weekly else ("mismatch", "slow", "kill")
    for number, fault in enumerate(faults):
        folder = tmp_path / f"{number}"
        begun = time.monotonic()
        measurement, ended = by_gloo(plan, folder, fault, chances.randrange(4, 12))
        if fault == "slow":
            expected, slow = Outcome.OK, slow + 1
        elif fault in GLOO_DEATHS:
            expected = Outcome.CRASH
            after["death"].append(ended - float(told(folder, "struck")[0]))
        else:
            expected = Outcome.TIMEOUT
            since = begun + GLOO_SETTINGS.init_timeout_seconds if fault == "missing" else moved(folder) + 2.0
            after["hang"].append(ended - since)
        if measurement.outcome is not expected or (expected is Outcome.CRASH and measurement.evidence.rank != 1) or left(folder):
            wrong.append((fault, measurement.outcome, measurement.evidence, left(folder)))
    assert not wrong
    chaos.found(f"{len(faults)} trials, {len(wrong)} of a wrong class; {slow} with a rank ten times as slow, 0 ended for it")
    chaos.found(f"deaths stored {worst(after['death'])} after (3 s asked)")
    chaos.found(f"hangs ended and swept {worst(after['hang'])} after their deadline (1 s asked)")


@dataclass(frozen=True)
class Holding:
    """What this process holds."""

    memory_bytes: int
    descriptors: int
    threads: int
    processes: int

    @classmethod
    def now(cls) -> "Holding":
        gc.collect()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
        return cls(1024 * int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"]), len(children))


SETTLED = 5
"""After so many trials a process holds what it holds for good, such as modules that were imported late."""


def grown(run: Callable[[int], Measurement], trials: int) -> tuple[Holding, Holding]:
    """What was held after the first few trials, which all end well, and after the last."""
    for number in range(trials):
        if number == SETTLED:
            first = Holding.now()
        assert run(number).outcome is Outcome.OK
    return first, Holding.now()


@pytest.mark.weekly
@pytest.mark.torch
@pytest.mark.chaos("Trials", "many trials in a row hold nothing")
@pytest.mark.parametrize("ranks", ["stand-in", "runtime"])
def test_many_trials_in_a_row(
    make_executor: Callable[..., LocalExecutor], plan: Plan, tmp_path: Path, chaos: Chaos, ranks: str
) -> None:
    executor = LocalExecutor() if ranks == "runtime" else make_executor("well")
    settings, trials = TrialSettings(steps=4), chaos.size(2 * SETTLED, 500)
    before, after = grown(lambda number: executor.execute(plan, tmp_path / f"{number}", settings), trials)
    assert after.memory_bytes - before.memory_bytes <= 20 * 2**20
    assert (after.descriptors, after.threads, after.processes) == (before.descriptors, before.threads, before.processes)
    chaos.found(
        f"{trials} trials of two processes: memory {(after.memory_bytes - before.memory_bytes) / 2**20:+.1f} MiB (20 asked)"
    )
    chaos.found(f"descriptors {after.descriptors - before.descriptors:+}, threads {after.threads - before.threads:+}")
    chaos.found(f"processes {after.processes - before.processes:+}")
