"""Faults of trials in large numbers: each is detected, classified, and leaves nothing behind."""

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
from executors.leftovers import LEFTOVERS, places

from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import started, tagged

SETTINGS = TrialSettings(steps=4, init_timeout_seconds=30.0, step_timeout_seconds=30.0, wall_timeout_seconds=60.0)
QUICK = replace(SETTINGS, init_timeout_seconds=6.0, step_timeout_seconds=1.0)
DEATHS = ("kill", "exit137", "segv", "raise", "abort")
HANGS = ("sleep", "hold-the-gil", "stop", "block-signals")
PHASES = ("spawn", "init", "build", "warm-up", "measure")
OTHERS = (
    "hang-in-init", "hang", "hang-ignoring-sigterm", "stopped", "killed", "segfault", "raises", "leaves-early", "leaves-nothing",
    "oom", "oom-without-record", "oom-code", "nan", "refused", "nan-figures", "torn", "zero-seconds", "noisy", "grandchild",
    "grandchild-and-hang", "never-starts", "hang-at-exit", "killed-once", "crash-with-hanging-peer",
)  # fmt: skip

Execute = Callable[..., tuple[Measurement, Path]]


@pytest.fixture
def execute(make_executor: Callable[..., LocalExecutor], plan: Plan, tmp_path: Path) -> Iterator[Execute]:
    """``execute(fault, settings)``: the measurement and the trial's folder."""
    number = iter(range(10**6))

    def run(fault: str, settings: TrialSettings = SETTINGS) -> tuple[Measurement, Path]:
        folder = tmp_path / f"{next(number)}"
        return make_executor(fault).execute(plan, folder, settings), folder

    return run


def noted(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().split() if (folder / name).exists() else []


def leftovers_of(folder: Path) -> list[str]:
    """Descriptions of everything that is left of the trial."""
    mine = f".{os.getpid()}.{started(os.getpid())}."
    processes = [f"process {pid}" for pid, tag in tagged("").items() if mine in tag]
    hidden = [f"process {pid}" for pid in noted(folder, "pids") if Path(f"/proc/{pid}").exists()]
    ports = [f"port {port}" for port in noted(folder, "ports") if _listens(int(port))]
    paths = [path for path in noted(folder, "paths") if os.path.lexists(path)]
    return processes + hidden + ports + paths + [f"folder {place}" for place in places(mine)]


def _listens(port: int) -> bool:
    with socket.socket() as ours:
        return ours.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.chaos("Trials", "a dead rank is detected and classified")
def test_a_dead_rank_is_detected(execute: Execute, chaos: Chaos) -> None:
    chances, seconds, wrong = chaos.random(), [], []
    cases = [(death, phase) for death in DEATHS for phase in PHASES]
    for death, phase in chances.sample(cases, 2) if not chaos.weekly else cases * 4:
        measurement, folder = execute(f"{death}@{phase}")
        seconds.append(time.monotonic() - float(noted(folder, "fault-time")[0]))
        if (measurement.outcome, measurement.evidence.rank) != (Outcome.CRASH, 1) or leftovers_of(folder):
            wrong.append((death, phase, measurement.outcome, measurement.evidence, leftovers_of(folder)))
    assert not wrong
    chaos.found(f"{len(seconds)} deaths of {len(DEATHS)} kinds in {len(PHASES)} phases, {len(wrong)} of a wrong class")
    chaos.found(f"stored {worst(seconds)} after (3 s allowed)")


def worst(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s in the median and {max(seconds):.2f} s at most"


@pytest.mark.chaos("Trials", "a hang is detected")
def test_a_hang_is_detected(execute: Execute, chaos: Chaos) -> None:
    chances, late, with_errors = chaos.random(), [], []
    cases = [(hang, phase) for hang in HANGS for phase in ("init", "measure")]
    for hang, phase in [(chances.choice(HANGS), "measure")] if not chaos.weekly else cases * 5:
        begun = time.monotonic()
        measurement, folder = execute(f"{hang}@{phase}", QUICK if phase == "init" else replace(SETTINGS, step_timeout_seconds=1.0))
        since = begun + QUICK.init_timeout_seconds if phase == "init" else last_progress(folder) + QUICK.step_timeout_seconds
        late.append(time.monotonic() - since)
        why = "not ready in time" if phase == "init" else "no rank moved"  # not the deadline of the whole trial
        if measurement.outcome is not Outcome.TIMEOUT or why not in measurement.evidence.message or leftovers_of(folder):
            with_errors.append((hang, phase, measurement.outcome, measurement.evidence, leftovers_of(folder)))
    assert not with_errors
    chaos.found(f"{len(late)} hangs of {len(HANGS)} kinds, {len(with_errors)} missed")
    chaos.found(f"ended and swept {worst(late)} after the deadline (1 s allowed)")


def last_progress(folder: Path) -> float:
    """Time of the last progress of any rank, in monotonic seconds."""
    last = max(path.stat().st_mtime for path in folder.glob("rank-*.phase"))
    return last - time.time() + time.monotonic()


@pytest.mark.chaos("Trials", "a rank ten times as slow is not a hang")
def test_a_slow_rank_is_not_terminated(execute: Execute, chaos: Chaos) -> None:
    tries = chaos.size(1, 20)
    patient = replace(QUICK, step_timeout_seconds=2.0)  # less than all steps, more than one step on a busy machine
    ended = [execute("slow-rank", patient)[0].outcome for _ in range(tries)]
    false = sum(outcome is not Outcome.OK for outcome in ended)
    assert false == 0
    chaos.found(f"{tries} trials with steps ten times as long, {false} terminated for slowness")


@pytest.mark.chaos("Trials", "a failed trial leaves nothing behind")
def test_a_failed_trial_leaves_nothing_behind(execute: Execute, chaos: Chaos) -> None:
    chances, trials, behind = chaos.random(), chaos.size(4, 200), []
    faults = [f"{name}@{chances.choice(PHASES[2:])}" for name in LEFTOVERS] + list(OTHERS)
    for fault in schedule(faults, trials, chances):
        measurement, folder = execute(fault, QUICK)
        if found := leftovers_of(folder):
            behind.append((fault, measurement.outcome, found))
    assert not behind
    chaos.found(f"{trials} trials with faults of {len(faults)} kinds")
    chaos.found(f"left at once: {len(behind)} processes, ports, temporary folders and files of shared memory")


def schedule(faults: list[str], count: int, chances: random.Random) -> Iterator[str]:
    """Each fault equally often, in random order."""
    deck: list[str] = []
    for _ in range(count):
        deck = deck or chances.sample(faults, len(faults))
        yield deck.pop()


GLOO = str(Path(__file__).with_name("gloo_rank.py"))
GLOO_DEATHS, GLOO_HANGS = ("kill", "segv", "exit137", "throw"), ("mismatch", "skip", "hold-the-gil", "stop", "missing")
GLOO_SETTINGS = TrialSettings(steps=12, init_timeout_seconds=20.0, step_timeout_seconds=2.0, wall_timeout_seconds=120.0)


def by_gloo(plan: Plan, folder: Path, fault: str, at: int) -> tuple[Measurement, float]:
    """The measurement of torchrun's ranks with this fault at a step, and the time when it was stored."""
    executor = LocalExecutor(program=(sys.executable, GLOO, fault, str(at)))
    return executor.execute(plan, folder, GLOO_SETTINGS), time.monotonic()


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.chaos("Trials", "faults of real ranks, with torchrun and gloo")
def test_faults_of_real_ranks_are_classified(plan: Plan, tmp_path: Path, chaos: Chaos) -> None:
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
            after["death"].append(ended - float(noted(folder, "fault-time")[0]))
        else:
            expected = Outcome.TIMEOUT
            since = begun + GLOO_SETTINGS.init_timeout_seconds if fault == "missing" else last_progress(folder) + 2.0
            after["hang"].append(ended - since)
        if (
            measurement.outcome is not expected
            or (expected is Outcome.CRASH and measurement.evidence.rank != 1)
            or leftovers_of(folder)
        ):
            wrong.append((fault, measurement.outcome, measurement.evidence, leftovers_of(folder)))
    assert not wrong
    chaos.found(
        f"{len(faults)} trials, {len(wrong)} of a wrong class; {slow} with a rank ten times as slow, 0 terminated for slowness"
    )
    chaos.found(f"deaths stored {worst(after['death'])} after (3 s allowed)")
    chaos.found(f"hangs ended and swept {worst(after['hang'])} after their deadline (1 s allowed)")


@dataclass(frozen=True)
class HeldResources:
    """Resources held by this process."""

    memory_bytes: int
    descriptors: int
    threads: int
    processes: int

    @classmethod
    def now(cls) -> "HeldResources":
        gc.collect()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
        return cls(1024 * int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"]), len(children))


SETTLED = 5
"""Number of trials after which lazily imported modules are loaded."""


def resources_before_and_after(run: Callable[[int], Measurement], trials: int) -> tuple[HeldResources, HeldResources]:
    """Resources held after the first few trials, and after the last; all trials must succeed."""
    for number in range(trials):
        if number == SETTLED:
            first = HeldResources.now()
        assert run(number).outcome is Outcome.OK
    return first, HeldResources.now()


@pytest.mark.weekly
@pytest.mark.torch
@pytest.mark.chaos("Trials", "many trials in a row leak nothing")
@pytest.mark.parametrize("ranks", ["stand-in", "runtime"])
def test_many_trials_in_a_row_leak_nothing(
    make_executor: Callable[..., LocalExecutor], plan: Plan, tmp_path: Path, chaos: Chaos, ranks: str
) -> None:
    executor = LocalExecutor() if ranks == "runtime" else make_executor("well")
    settings, trials = TrialSettings(steps=4), chaos.size(2 * SETTLED, 500)
    before, after = resources_before_and_after(lambda number: executor.execute(plan, tmp_path / f"{number}", settings), trials)
    assert after.memory_bytes - before.memory_bytes <= 20 * 2**20
    assert (after.descriptors, after.threads, after.processes) == (before.descriptors, before.threads, before.processes)
    chaos.found(
        f"{trials} trials of two processes: memory {(after.memory_bytes - before.memory_bytes) / 2**20:+.1f} MiB (20 allowed)"
    )
    chaos.found(f"descriptors {after.descriptors - before.descriptors:+}, threads {after.threads - before.threads:+}")
    chaos.found(f"processes {after.processes - before.processes:+}")
