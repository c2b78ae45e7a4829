"""Out of memory is detected for every kind of allocation, and never from messages that only mention memory."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from chaos import Chaos
from executors.conftest import StandInEngine
from executors.oom_rank import KINDS
from executors.test_judge_trial import ENDING, rank_without_record, recorded, successful_rank, verdict
from strategist_runtime.rank_process import is_out_of_memory

from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors import host_memory
from strategist.executors.host_memory import FLOOR_BYTES, available_bytes
from strategist.executors.local import LocalExecutor
from strategist.units import GIB

pytestmark = pytest.mark.torch

RANK = str(Path(__file__).with_name("oom_rank.py"))
SETTINGS = TrialSettings(init_timeout_seconds=40.0, step_timeout_seconds=600.0, wall_timeout_seconds=600.0)
FAILED = replace(ENDING, exit_code=1)

OOM_MESSAGES = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "  what():  std::bad_alloc",
    "OSError: [Errno 12] Cannot allocate memory",
    "MemoryError",
    "numpy._core._exceptions._ArrayMemoryError: MemoryError: Unable to allocate 2.00 GiB for an array",
)  # fmt: skip
"""Last log lines of processes without a record; those of CUDA are torch's."""

OTHER_MESSAGES = (
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: Pin memory thread exited unexpectedly",
    "RuntimeError: memory_format option is only supported by strided tensors",
    "RuntimeError: unsupported operation: some elements of the input tensor refer to a single memory location.",
    "RuntimeError: CUDA error: misaligned address",
    "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error. It is possible that dataloader's workers are out of"
    " shared memory. Please try to raise your shared memory limit.",
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    "OSError: /lib/libgomp.so.1: cannot allocate memory in static TLS block",
    "OSError: [Errno 28] No space left on device",
    "INFO falls back to recomputation on CUDA out of memory",
    "WARNING MemoryError handler installed",
    "WARNING the batch is halved after torch.OutOfMemoryError or std::bad_alloc",
    "KeyError: 'CUDA out of memory'",
    "KeyError: 'peak_memory_bytes'",
    "ValueError: memory_fraction: can't allocate memory of a device that is not there",
    "AssertionError: Cannot allocate memory before init",
    "free(): invalid pointer",
    "malloc(): corrupted top size",
    "double free or corruption (!prev)",
    "Fatal Python error: Segmentation fault: invalid memory reference",
    "ImportError: cannot import name 'OutOfMemoryError' from 'torch'",
    "AttributeError: module 'torch' has no attribute 'OutOfMemoryError'",
    "TypeError: low_cpu_mem_usage is set to True since the model is quantized",
    "RuntimeError: CUDA error: device-side assert triggered",
    "NameError: name 'MemoryError_' is not defined",
)  # fmt: skip
"""Messages of other failures that mention memory."""


@contextmanager
def least_memory() -> Iterator[list[int]]:
    """Polls the machine's free memory while trials run; the list's last value is the minimum."""
    least, over = [available_bytes()], threading.Event()

    def poll() -> None:
        while not over.wait(0.01):
            least.append(min(least[-1], available_bytes()))

    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        yield least
    finally:
        over.set()
        watcher.join()


def run(plan: Plan, folder: Path, kind: str) -> Measurement:
    """A trial in which a rank runs out of memory in this way."""
    return LocalExecutor(study="memory", engine=StandInEngine(), program=(sys.executable, RANK, kind)).execute(
        plan, folder, SETTINGS
    )


def test_a_rank_over_its_memory_limit_is_out_of_memory(plan: Plan, tmp_path: Path) -> None:
    for kind in ("python", "c++"):
        measurement = run(plan, tmp_path / kind, kind)
        assert (measurement.outcome, measurement.evidence.rank) == (Outcome.OOM, 1), measurement.evidence


@pytest.mark.full
@pytest.mark.chaos("Trials", "every kind of out of memory is classified as such")
def test_every_kind_of_out_of_memory_is_detected(plan: Plan, tmp_path: Path, chaos: Chaos) -> None:
    each, with_errors = chaos.size(1, 10), []
    kinds = [kind for kind in KINDS if kind != "machine"]
    for number, kind in enumerate(kinds * each):
        measurement = run(plan, tmp_path / f"{number}", kind)
        if measurement.outcome is not Outcome.OOM:
            with_errors.append((kind, measurement.outcome, measurement.evidence))
    ends_without_record = [rank_without_record(1, code, log_tail=f"{line}\n") for line in OOM_MESSAGES for code in (1, -6)]
    outcomes = [verdict(plan, FAILED, rank_without_record(0, -15), end).outcome for end in ends_without_record]
    with_errors += [outcome for outcome in outcomes if outcome is not Outcome.OOM]
    assert not with_errors
    chaos.found(f"{each * len(kinds)} trials of {len(kinds)} kinds and {len(outcomes)} logs of processes without a record")
    chaos.found(f"{len(with_errors)} missed")


@pytest.mark.full
@pytest.mark.chaos("Trials", "a trial is terminated before it takes the machine's last memory")
def test_a_trial_is_terminated_before_it_takes_the_last_memory(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chaos: Chaos
) -> None:
    """The floor is set one GiB below the free memory, to take little from other processes; weekly also the real floor."""
    deepest, trials = 0, chaos.size(1, 10)
    for number in range(trials):
        with monkeypatch.context() as patch, least_memory() as least:
            floor = available_bytes() - GIB
            patch.setattr(host_memory, "floor_bytes", lambda floor=floor: floor)
            measurement = run(plan, tmp_path / f"{number}", "machine")
        assert measurement.outcome is Outcome.OOM, measurement.evidence
        assert "had taken the machine's last memory" in measurement.evidence.message
        deepest = max(deepest, floor - least[-1])
    assert deepest < FLOOR_BYTES - 2 * GIB
    chaos.found(f"{trials} trials that take all: ended as out of memory, {deepest / 2**20:.0f} MiB below the floor at most")
    if chaos.weekly:
        with least_memory() as least:
            assert run(plan, tmp_path / "whole", "machine").outcome is Outcome.OOM
        assert least[-1] > 2 * GIB
        chaos.found(f"one with the floor of {FLOOR_BYTES / GIB:.0f} GiB: {least[-1] / GIB:.1f} GiB stayed free (2 GiB required)")


@pytest.mark.chaos("Trials", "failures that only mention memory are not classified as out of memory")
def test_failures_that_only_mention_memory_are_not_out_of_memory(plan: Plan, chaos: Chaos) -> None:
    """As the message of a record, classified by its exception, and as the log of a process without a record."""
    false, count = [], 0
    for line in OTHER_MESSAGES:
        name, _, message = line.partition(": ")
        thrown = {"RuntimeError": RuntimeError, "OSError": OSError, "ValueError": ValueError, "KeyError": KeyError}.get(name)
        outcome = Outcome.OOM if thrown and is_out_of_memory(thrown(message)) else Outcome.CRASH
        ends = [
            recorded(1, outcome, line),
            *(rank_without_record(1, code, log_tail=f"Traceback\n{line}\n") for code in (1, -6, -9)),
        ]
        for end in ends:
            count += 1
            if verdict(plan, FAILED, rank_without_record(0, -15), end).outcome is not Outcome.CRASH:
                false.append((line, end))
    assert not false
    assert count >= 100
    chaos.found(f"{count} other failures, {len(false)} taken for out of memory")


def test_memory_taken_by_other_processes_is_an_infrastructure_failure(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if other processes had taken more than is free since the trial began."""
    watch = host_memory.MemoryWatch("other")
    monkeypatch.setattr(host_memory, "available_bytes", lambda: watch._before // 2)
    monkeypatch.setattr(watch, "_floor", watch._before)
    assert watch.look() is host_memory.Deadline.CROWDED
    crowded = replace(FAILED, deadline=host_memory.Deadline.CROWDED, ended=frozenset())
    measurement = verdict(plan, crowded, rank_without_record(0, -9), rank_without_record(1, -9))
    assert (measurement.outcome, "others had taken" in measurement.evidence.message) == (Outcome.INFRASTRUCTURE, True)


def test_oom_kills_are_counted_in_the_cgroup_of_this_process(tmp_path: Path) -> None:
    """OOM kills in other containers do not count."""
    for name, text in {
        "proc/vmstat": "nr_free_pages 5\noom_kill 7\n",
        "proc/self/cgroup": "1:name=systemd:/\n0::/a.slice/job-1\n",
        "sys/fs/cgroup/a.slice/job-1/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host_memory.oom_kills(tmp_path) == 2
    (tmp_path / "sys/fs/cgroup/a.slice/job-1/memory.events").unlink()
    assert host_memory.oom_kills(tmp_path) == 7
    (tmp_path / "proc/vmstat").unlink()
    assert host_memory.oom_kills(tmp_path) == 0
    assert host_memory.oom_kills() >= 0


def test_a_killed_data_loader_worker_is_out_of_memory_if_the_kernel_counts_an_oom_kill(plan: Plan) -> None:
    failed = recorded(1, Outcome.CRASH, "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed.")
    assert verdict(plan, FAILED, successful_rank(0), failed).outcome is Outcome.CRASH
    assert verdict(plan, replace(FAILED, oom_kills=1), successful_rank(0), failed).outcome is Outcome.OOM
