"""Trials on a real Ray cluster: rendezvous, waiting for nodes, outcomes, and no process left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from executors.conftest import wait_until
from executors.test_engines import SETTINGS, STAND_IN, leftover_processes
from ray_cluster import RAY, RayCluster, missing

from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.errors import InputError
from strategist.executors.command import CommandExecutor
from strategist.executors.engine import Ray
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import sweep, tagged
from strategist.files import yaml_file
from strategist.programs.program_file import read_program
from strategist.tuner.study import read

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    if why := missing():
        pytest.skip(why)
    with RayCluster.started() as cluster:
        yield cluster


@pytest.fixture
def by_ray(ray: RayCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with one rank on each of the cluster's two nodes."""
    monkeypatch.syspath_prepend(str(RAY))
    for name, value in ray.environment.items():
        monkeypatch.setenv(name, value)
    return replace(plan, cluster=replace(plan.cluster, nodes=2, gpus_per_node=1))


def executor(fault: str, study: str = "ray") -> LocalExecutor:
    engine = Ray(address=os.environ["RAY_ADDRESS"])
    return LocalExecutor(study=study, engine=engine, program=(sys.executable, STAND_IN, "rank", fault))


TUNER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from executors.test_ray import SETTINGS, executor
from strategist.contract import codec
from strategist.contract.plan import Plan
plan = codec.load(Plan, Path(sys.argv[2], "given.json"))
executor("grandchild-and-hang", sys.argv[3]).execute(plan, Path(sys.argv[2], "trial"), SETTINGS)
"""


@pytest.mark.full
@pytest.mark.engine("ray")
def test_a_queued_trial_starts_when_the_tuner_that_holds_the_nodes_is_killed(by_ray, tmp_path: Path) -> None:
    """Nothing is left of the killed tuner's trial, nor of the queued trial, which hangs later."""
    plan = by_ray
    codec.save(plan, tmp_path / "given.json")
    study = f"tuner-{os.getpid()}-ray"
    command = [sys.executable, "-c", TUNER, str(Path(__file__).parents[1]), str(tmp_path), study]
    tuner = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    queued: list[Progress] = []

    def see(progress: Progress) -> None:
        if progress.phase == "queued":
            queued.append(progress)
        if len(queued) == 3:
            tuner.send_signal(signal.SIGKILL)

    try:
        wait_until(lambda: len(list(tmp_path.glob("trial/hanging-*"))) == 2)
        found = executor("grandchild-and-hang").execute(plan, tmp_path / "next", replace(SETTINGS, step_timeout_seconds=1.0), see)
        assert found.outcome is Outcome.TIMEOUT, found.evidence
        assert {progress.elapsed_seconds for progress in queued} == {0.0}
        assert leftover_processes() == {}
        assert not [tag for tag in tagged("").values() if f"{study}." in tag]
    finally:
        tuner.kill()
        sweep(study)


@pytest.mark.full
@pytest.mark.engine("ray")
def test_a_trial_on_a_lost_ray_node_is_run_again(by_ray, ray, tmp_path: Path) -> None:
    """The lost trial runs again on the replacement node."""
    study = tmp_path / "study"
    options = "--model tiny --gpus 2x1xcpu --seq-len 64 --global-batch 8 --trials 1 --confirm 0 --steps 30 --engine ray --quiet"
    command = [sys.executable, "-m", "strategist.cli.main", "tune", *options.split(), "--study", str(study)]
    tuner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (study / "trials" / "1-1" / "progress.jsonl").exists() or tuner.poll() is not None)
    ray.lose("worker")
    ray.begin("worker")
    _, output = tuner.communicate()
    assert tuner.returncode == 0, output
    [trial] = read(study).trials
    assert (trial.outcome, trial.attempts) == (Outcome.OK, 2)
    lost = codec.load(Measurement, study / "trials" / "1-1" / "measurement.json")
    assert lost.outcome is Outcome.INFRASTRUCTURE, lost.evidence


@pytest.mark.full
@pytest.mark.engine("ray")
def test_an_external_program_runs_on_each_ray_node(by_ray, tmp_path: Path) -> None:
    text = (
        "program: script\ncommand: [sh, -c, 'echo on $NODE_RANK of $NNODES; echo step 1 took 0.5 s; sleep 1', '{ranks_per_node}']\n"
        "layout: {dp_shard: any}\nworkload: {seq_len: any, global_batch: any}\nknobs: {micro_batch: any}\n"
        'metrics: {lines: "step {step} took {step_seconds} s"}\n'
    )
    program = read_program(yaml_file.parse(text, "script.yaml"))
    engine = Ray(address=os.environ["RAY_ADDRESS"])
    found = CommandExecutor(program=program, study="ray", engine=engine).execute(by_ray, tmp_path, SETTINGS)
    assert found.outcome is Outcome.OK, found.evidence
    assert "on 0 of 2" in (tmp_path / "rank-0.log").read_text()
    assert "on 1 of 2" in (tmp_path / "host-1.log").read_text()
    assert leftover_processes() == {}


@pytest.mark.full
@pytest.mark.engine("ray")
def test_a_crash_names_its_rank(by_ray, tmp_path: Path) -> None:
    found = executor("raises").execute(by_ray, tmp_path, SETTINGS)
    assert (found.outcome, found.evidence.rank) == (Outcome.CRASH, 1), found.evidence
    assert leftover_processes() == {}


@pytest.mark.full
@pytest.mark.engine("ray")
def test_an_unreachable_cluster_is_an_infrastructure_failure_with_its_address(by_ray, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.4:9")
    found = executor("well").execute(by_ray, tmp_path, SETTINGS)
    assert found.outcome is Outcome.INFRASTRUCTURE
    assert "--ray 127.0.0.4:9: cannot be reached" in found.evidence.log_tail


@pytest.mark.parametrize("address", ["ray://head:10001", ""])
def test_an_address_of_no_local_cluster_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(InputError, match=r"--ray .*: is not the address of a cluster that this machine is a node of"):
        Ray(address=address)
