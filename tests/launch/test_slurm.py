"""The batch script of an exported plan on a real Slurm: ranks on two nodes join and train."""

import os
import re
import shlex
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
from strategist.launch.catalog import NONE, with_job
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
    export_small(tmp_path)
    assert steps_in(submitted(slurm, tmp_path, "--steps", "3")) == ["1", "2", "3"]


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.full
def test_a_training_of_which_a_rank_crashes_resumes_from_its_checkpoint(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The kernel kills rank 1 before its third step, once."""
    export_small(tmp_path, JobOptions(restarts=2))
    script, crash = tmp_path / "train.py", tmp_path / "crashed"
    place = "        started = time.perf_counter()\n"
    dies = f"        if step == 2 and dist.get_rank() == 1 and not Path({str(crash)!r}).exists():\n"
    dies += f"            Path({str(crash)!r}).touch()\n            os.kill(os.getpid(), 9)\n"
    assert place in script.read_text()
    script.write_text("import os\n" + script.read_text().replace(place, dies + place))
    log = submitted(slurm, tmp_path, "--steps", "4", "--save", str(tmp_path / "saved"), "--save-every", "1")
    assert steps_in(log) == ["1", "2", "3", "4"], log
    assert log.count("start 1 of at most 3 ended with exit code") == 1, log


def export_small(folder: Path, options: JobOptions = NONE) -> None:
    """A plan for a rank on each of two nodes, with its batch script."""
    asked = situation(Request(model="tiny", gpus="2x1xcpu", workload=Workload(seq_len=64, global_batch=8, precision="fp32")))
    plan = price_candidate(asked, Candidate(layout=Layout(dp_shard=2), knobs=Knobs()), deck=deck())
    for file in with_job(plan, write(plan, {}), "slurm", options).files:
        (folder / file.name).write_text(file.text)


def submitted(slurm: SlurmCluster, folder: Path, *arguments: str) -> str:
    """The log of a job that has ended."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **slurm.environment, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = ["sbatch", "--parsable", "--output=job.log", "job.sbatch", *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    while slurm.output_of("squeue", "--noheader"):
        time.sleep(0.2)
    return (folder / "job.log").read_text()


def steps_in(log: str) -> list[str]:
    return re.findall(r"^step (\d+) ", log, re.MULTILINE)


@pytest.mark.parametrize(("failures", "code", "starts"), [(0, 0, 1), (2, 0, 3), (9, 7, 3)])
def test_a_failed_training_restarts_at_most_n_times(failures: int, code: int, starts: int, tmp_path: Path) -> None:
    """With a srun that fails so many times."""
    export_small(tmp_path, JobOptions(restarts=2))
    count = tmp_path / "starts"
    counts = f"echo x >> starts; (($(wc -l < starts) > {failures})) || exit 7"
    for name, line in {"srun": counts, "scontrol": "echo n1"}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\ncd {shlex.quote(str(tmp_path))}\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    environment = {**os.environ, **job, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "job.sbatch"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, count.read_text().count("x")) == (code, starts)
    assert done.stderr.count("of at most 3 ended with exit code 7") == min(failures, starts)


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
