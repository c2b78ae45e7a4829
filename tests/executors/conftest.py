"""Fixtures: a plan for two CPU ranks, and an executor with stand-ins for torchrun and the runtime."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from strategist.contract.cluster import Cluster, Curve, Device, Link
from strategist.contract.estimate import Estimate, MemoryParts, TimeParts
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.plan import Digests, Plan
from strategist.contract.workload import Workload
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import TAG, new_tag

STAND_IN = str(Path(__file__).with_name("stand_in.py"))
LAUNCHER = str(Path(__file__).with_name("stand_in_launcher.py"))


def full_only(*values: object) -> object:
    """A parameter set that only ``make test-all`` runs."""
    return pytest.param(*values, marks=pytest.mark.full)


def wait_until(true: Callable[[], bool]) -> None:
    """Waits until a condition holds; the test's timeout is the limit."""
    while not true():
        time.sleep(0.01)


@dataclass(frozen=True)
class StandInEngine:
    """Stands in for torchrun."""

    command: tuple[str, ...] = ()
    elsewhere = queues = False
    passes = ()

    def launcher(self, plan: Plan, folder: Path, restarts: int = 0) -> tuple[str, ...]:
        return self.command or (sys.executable, LAUNCHER, str(plan.candidate.layout.world_size), str(restarts))


@pytest.fixture
def make_executor() -> Callable[..., LocalExecutor]:
    """``make_executor(fault)``: an executor whose ranks have that fault; no other process has its study."""

    def make(fault: str, study: str = new_tag("test")) -> LocalExecutor:
        return LocalExecutor(study=study, engine=StandInEngine(), program=(sys.executable, STAND_IN, "rank", fault))

    return make


@pytest.fixture
def plan() -> Plan:
    curve = Curve(points=((1.0, 0.5),), origin="assumed: a test")
    device = Device(
        name="test-cpu", kind="cpu", memory_bytes=2**31, usable_memory_bytes=2**31, peak_flops={"fp32": 1e10},
        memory_bytes_per_second=1e10, matmul=curve, attention_efficiency=0.5, memory_efficiency=0.5, launch_seconds=1e-6,
    )  # fmt: skip
    link = Link(name="test-link", bytes_per_second=1e9, pair_bytes_per_second=1e9, latency_seconds=1e-5)
    memory = MemoryParts(**dict.fromkeys(MemoryParts.__dataclass_fields__, 1.0))
    seconds = TimeParts(**dict.fromkeys(TimeParts.__dataclass_fields__, 0.001))
    return Plan(
        model=ModelShape(
            name="tiny", layers=2, hidden_size=32, heads=2, kv_heads=2, head_size=16, ffn_size=64, vocab_size=128,
        ),
        cluster=Cluster(
            name="2xcpu", nodes=1, gpus_per_node=2, device=device, intra=link, inter=link, host_bytes_per_second=1e9,
            host_optimizer_bytes_per_second=1e9,
        ),
        workload=Workload(seq_len=16, global_batch=4, precision="fp32"),
        candidate=Candidate(layout=Layout(dp_shard=2), knobs=Knobs()),
        estimate=Estimate(
            memory=memory, peak_memory_bytes=8.0, capacity_bytes=2.0**31, host_memory_bytes_per_node=0.0, time=seconds,
            step_seconds=0.022, tokens_per_second=3000.0, mfu=0.4, communication_seconds=0.005, comm_ratio=0.2,
            exposed_comm_ratio=0.2,
        ),
        reasons=(),
        digests=Digests(deck="0", profiles="0", calibration="0"),
    ).identified()  # fmt: skip


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """``start(tag, code, *arguments)``: a program with a trial's tag in a new session; it has printed its first line."""
    started: list[subprocess.Popen[bytes]] = []

    def run(tag: str, code: str, *arguments: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], env={**os.environ, TAG: tag}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
