"""The batch script of an exported plan on a real Slurm: ranks on two nodes join and train."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from formats.plans import deck
from slurm_cluster import SlurmCluster, missing

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.pytorch import write
from strategist.launch.catalog import with_job
from strategist.launch.job import JobOptions
from strategist.planning.planner import price_candidate
from strategist.profiles.situation import situation


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(why)
    with SlurmCluster.started() as cluster:
        yield cluster


@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.full
def test_an_exported_plan_trains_on_two_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    asked = situation(Request(model="tiny", gpus="2x1xcpu", workload=Workload(seq_len=64, global_batch=8, precision="fp32")))
    plan = price_candidate(asked, Candidate(layout=Layout(dp_shard=2), knobs=Knobs()), deck=deck())
    for file in with_job(plan, write(plan, {}), "slurm").files:
        (tmp_path / file.name).write_text(file.text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **slurm.environment, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = ["sbatch", "--parsable", "--output=job.log", "job.sbatch", "--steps", "3"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    while slurm.output_of("squeue", "--noheader"):
        time.sleep(0.2)
    log = (tmp_path / "job.log").read_text()
    assert log.count("step ") == 3, log


def test_slurm_accepts_the_batch_script(slurm: SlurmCluster, tmp_path: Path) -> None:
    asked = situation(Request(model="8b", gpus="2x8xH100"))
    plan = price_candidate(asked, Candidate(layout=Layout(dp_shard=16), knobs=Knobs()), deck=deck())
    text = with_job(plan, write(plan, {}), "slurm", JobOptions(slurm="--partition=all --time=60")).files[-1].text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert "#SBATCH --open-mode=append\n" in text  # a requeued job keeps the log of its first run
    assert "#SBATCH --partition=all\n#SBATCH --time=60\n" in text
    (tmp_path / "job.sbatch").write_text(text.replace("#SBATCH --gpus-per-node=8\n", ""))  # the test's nodes have no GPUs
    environment = {**os.environ, **slurm.environment}
    done = subprocess.run(["sbatch", "--test-only", "job.sbatch"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
