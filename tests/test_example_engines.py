"""Example scripts of engines run on two hosts of this machine, on a real Slurm and on a real Ray."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray_cluster
from executors.network import SHELL, available, two_hosts
from slurm_cluster import SlurmCluster, missing

from strategist.cli.main import main
from strategist.tuner.study import read

pytestmark = [pytest.mark.torch, pytest.mark.timeout(280), pytest.mark.full]
EXAMPLES = Path(__file__).parents[1] / "examples" / "engines"
PATHS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def test_a_plan_runs_on_two_hosts(tmp_path: Path) -> None:
    if not available():
        pytest.skip("networks of our own need root and iproute2")
    plan = tmp_path / "plan.json"
    request = ["--model", "tiny", "--gpus", "2x1xcpu", "--seq-len", "64", "--global-batch", "8", "--backend", "native"]
    assert main(["plan", *request, "-o", str(plan)]) == 0
    with two_hosts("1gbit") as pair:
        names, addresses = zip(*(item.split("=") for item in pair.hosts.split(",")), strict=True)
        environment = {**os.environ, "PATH": PATHS, "ADDRESSES": " ".join(addresses), "REMOTE_SHELL": SHELL}
        command = ["bash", str(EXAMPLES / "hosts.sh"), str(plan), *names]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "plan-run" / "measurement.json").read_text())["outcome"] == "ok"


@pytest.mark.engine("slurm")
def test_two_tuners_of_a_slurm_array_share_a_study(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    with SlurmCluster.started() as slurm:
        environment = {**os.environ, **slurm.environment, "PATH": PATHS, "TRIALS": "3", "OMP_NUM_THREADS": "1"}
        command = ["sbatch", str(EXAMPLES / "slurm_array.sbatch"), str(tmp_path / "study")]
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
        while slurm.output_of("squeue", "--noheader"):
            time.sleep(0.5)
    logs = "".join(path.read_text() for path in tmp_path.glob("tune-*.log"))
    trials = read(tmp_path / "study").trials
    assert [trial.outcome for trial in trials] == ["ok"] * 3, logs


@pytest.mark.engine("ray")
def test_two_trials_run_in_parallel_on_ray(tmp_path: Path) -> None:
    if why := ray_cluster.missing():
        pytest.skip(why)
    with ray_cluster.RayCluster.started() as ray:
        environment = {**os.environ, **ray.environment, "PATH": PATHS, "TRIALS": "2", "OMP_NUM_THREADS": "1"}
        command = ["bash", str(EXAMPLES / "ray.sh"), str(tmp_path / "study")]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    trials = read(tmp_path / "study").trials
    assert [trial.outcome for trial in trials] == ["ok"] * 2, done.stdout + done.stderr
    assert max(trial.started for trial in trials) < min(trial.ended for trial in trials)
    assert done.returncode == 0, done.stderr
