"""The local executor with torchrun and the real runtime: a successful trial, and faults that only real ranks show."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from executors.test_sockets import LOOPBACK, listening

from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import tagged

pytestmark = pytest.mark.torch

LONG = TrialSettings(steps=100_000, step_timeout_seconds=3.0)


def leftover_processes() -> list[int]:
    return [pid for pid, tag in tagged("").items() if f".{os.getpid()}." in tag]


def rank_process(rank: int) -> int:
    """The process of a rank, a child of its supervisor."""
    for pid in leftover_processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        is_rank = b"strategist_runtime" in words and b"strategist.executors.process_supervisor" not in words
        if is_rank and f"RANK={rank}".encode() in variables:
            return pid
    raise AssertionError(f"no process of rank {rank}")


def signal_rank_1(number: int) -> Callable[[Progress], None]:
    """An event callback that sends the signal to rank 1 in its measuring phase."""
    struck: list[int] = []

    def on_event(progress: Progress) -> None:
        if progress.phase == "measure" and not struck:
            struck.append(rank_process(1))
            os.kill(struck[0], number)

    return on_event


def execute(plan: Plan, folder: Path, settings: TrialSettings, on_event: Callable[[Progress], None] | None = None) -> Measurement:
    measurement = LocalExecutor().execute(plan, folder, settings, on_event)
    assert leftover_processes() == []
    return measurement


@pytest.mark.full
def test_a_plan_runs_and_is_measured(plan: Plan, tmp_path: Path):
    seen = set[str]()
    measurement = execute(plan, tmp_path, TrialSettings(steps=4), lambda _: seen.update(listening(set(leftover_processes()))))
    assert (measurement.outcome, measurement.evidence.message) == (Outcome.OK, "")
    assert (measurement.steps_measured, len(measurement.losses), len(measurement.peak_memory_bytes)) == (4, 7, 2)
    assert 0 < measurement.step_seconds < measurement.wall_seconds
    assert 0 < measurement.exposed_comm_ratio <= measurement.comm_ratio <= 1
    assert measurement.versions["torch"]
    assert 0 < len(seen & LOOPBACK) == len(seen), "ranks listen on loopback alone"


@pytest.mark.full
def test_a_plan_that_does_not_fit_runs_out_of_memory(plan: Plan, tmp_path: Path):
    small = replace(plan.cluster.device, memory_bytes=24 * 2**20, usable_memory_bytes=24 * 2**20)
    model = replace(plan.model, hidden_size=512, head_size=256, ffn_size=2048, vocab_size=32768)
    large = replace(plan, model=model, cluster=replace(plan.cluster, device=small)).identified()
    measurement = execute(large, tmp_path, TrialSettings(steps=2))
    assert measurement.outcome is Outcome.OOM, measurement.evidence


@pytest.mark.weekly
def test_a_killed_rank_is_named_and_not_its_failing_peer(plan: Plan, tmp_path: Path):
    measurement = execute(plan, tmp_path, LONG, signal_rank_1(signal.SIGKILL))
    assert (measurement.outcome, measurement.evidence.rank) == (Outcome.CRASH, 1), measurement.evidence
    assert "signal 9" in measurement.evidence.message


@pytest.mark.weekly
def test_a_stopped_rank_is_a_timeout(plan: Plan, tmp_path: Path):
    measurement = execute(plan, tmp_path, LONG, signal_rank_1(signal.SIGSTOP))
    assert (measurement.outcome, measurement.evidence.rank) == (Outcome.TIMEOUT, 1), measurement.evidence
