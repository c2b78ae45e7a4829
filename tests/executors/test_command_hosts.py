"""External programs on several hosts: the command runs on each, and the first host's log is read."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from executors.conftest import wait_until
from ledger.workers import start

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.executors import processes
from strategist.executors.command import CommandExecutor
from strategist.executors.engine import TORCHRUN, Hosts, hosts
from strategist.executors.processes import tagged
from strategist.files import yaml_file
from strategist.programs.program_file import read_program

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
TWO = hosts("one=127.0.0.1,two=127.0.0.1", "env HOST={host} sh -c {command}")
SETTINGS = TrialSettings(steps=3, warmup_steps=1, init_timeout_seconds=90.0)
SCRIPT = """
program: script
command: [sh, -c, '{script}', "{{ranks_per_node}}"]
layout: {{dp_shard: any}}
workload: {{seq_len: any, global_batch: any}}
knobs: {{micro_batch: any}}
metrics: {{lines: "step {{step}} took {{step_seconds}} s"}}
deadlines: {{start_seconds: 60}}
"""


def executor(text: str, engine: Hosts = TWO) -> CommandExecutor:
    return CommandExecutor(program=read_program(yaml_file.parse(text, "script.yaml")), study="hosts", engine=engine)


def script(words: str) -> str:
    return SCRIPT.format(script=words)


@pytest.fixture
def two(plan: Plan) -> Plan:
    """A plan with two ranks, one on each of two nodes."""
    workload = Workload(seq_len=32, global_batch=8, precision="fp32")
    candidate = Candidate(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2))
    return replace(plan, candidate=candidate, workload=workload, cluster=replace(plan.cluster, nodes=2, gpus_per_node=1))


def leftover_processes() -> dict[int, str]:
    return {pid: tag for pid, tag in tagged("").items() if f".{os.getpid()}." in tag}


@pytest.mark.full
@pytest.mark.engine("torchrun --hosts")
def test_a_program_has_equal_losses_on_two_hosts_and_on_one(two: Plan, tmp_path: Path) -> None:
    program = read_program(yaml_file.load(ROOT / "examples/program/program.yaml"))
    found = {
        name: CommandExecutor(program=program, study="hosts", engine=engine).execute(two, tmp_path / name, SETTINGS)
        for name, engine in (("here", TORCHRUN), ("hosts", TWO))
    }
    assert {name: item.outcome for name, item in found.items()} == dict.fromkeys(found, Outcome.OK), found
    assert found["hosts"].losses == pytest.approx(found["here"].losses, rel=1e-5)
    assert len(found["hosts"].losses) == len(found["here"].losses) >= 3, "only the first host's steps count"
    assert (tmp_path / "hosts" / "host-1.log").exists()
    assert leftover_processes() == {}


def test_each_host_gets_its_node_rank_and_the_rendezvous_address(two: Plan, tmp_path: Path) -> None:
    report = script(
        'echo "$NODE_RANK $NNODES $0 $RDZV_ENDPOINT $MASTER_ADDR:$MASTER_PORT $HOST"; echo "step 1 took 0.5 s"; sleep 1'
    )
    assert executor(report).execute(two, tmp_path, SETTINGS).outcome is Outcome.OK
    first, second = ((tmp_path / name).read_text().split() for name in ("rank-0.log", "host-1.log"))
    assert [first[0], second[0]] == ["0", "1"]
    assert first[1:3] == second[1:3] == ["2", "1"]
    assert first[3] == first[4] == second[3]
    assert [first[5], second[5]] == ["one", "two"]


@pytest.mark.engine("torchrun --hosts")
def test_out_of_memory_on_another_host_is_detected(two: Plan, tmp_path: Path) -> None:
    fails = script('[ $NODE_RANK = 0 ] && exec sleep 60; echo "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"; exit 1')
    measurement = executor(fails).execute(two, tmp_path, SETTINGS)
    assert measurement.outcome is Outcome.OOM
    assert "Tried 2 GiB" in measurement.evidence.message
    assert leftover_processes() == {}


@pytest.mark.engine("torchrun --hosts")
def test_a_killed_tuner_leaves_no_process_of_a_program_on_any_host(two: Plan, tmp_path: Path) -> None:
    sleeps = script(f'touch "{tmp_path}/begun-$NODE_RANK"; exec sleep 600')
    tuner = start(executor(sleeps).execute, two, tmp_path / "trial", SETTINGS)
    mine = lambda: [tag for tag in tagged("").values() if f".{tuner.pid}." in tag]  # noqa: E731
    try:
        wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        assert len(mine()) >= 5  # supervisor, launcher, two agents, two programs
        tuner.kill()
        tuner.join()
        wait_until(lambda: not mine())
    finally:
        tuner.kill()
        processes.sweep("hosts")


@pytest.mark.parametrize("words", [', "--standalone", "{ranks_per_node}"', ""])
def test_a_command_without_a_rendezvous_is_refused_on_several_hosts(words: str, two: Plan, tmp_path: Path) -> None:
    alone = script("sleep 60").replace(', "{ranks_per_node}"', words)
    with pytest.raises(InputError, match=r"script: starts all ranks on one machine, .*write --nproc-per-node=\{ranks_per_node\}"):
        executor(alone).execute(two, tmp_path / "trial", SETTINGS)
    assert not (tmp_path / "trial").exists()
