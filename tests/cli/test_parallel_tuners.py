"""Parallel trials of one command under a scheduler; all end with the command."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from executors.test_engines import wait_until
from slurm_cluster import SlurmCluster, missing

from strategist.cli.main import main
from strategist.contract.study import StudyTrial
from strategist.executors import temporary_files
from strategist.tuner.study import read

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]
TUNE = ("tune", "--model", "tiny", "--gpus", "1xcpu", "--seq-len", "64", "--global-batch", "8", "--steps", "3", "--confirm", "0")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(why)
    with SlurmCluster.started() as cluster:
        yield cluster


def started(slurm: SlurmCluster, study: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "strategist.cli.main", *TUNE, "--study", str(study), "--engine", "slurm", *options]
    environment = {**os.environ, **slurm.environment, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def processes_of(study: Path) -> list[Path]:
    """Tuners, launchers, agents and ranks: their command lines contain the study's path."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if str(study).encode() in (process / "cmdline").read_bytes():
                found.append(process)
    return found


def overlap(one: StudyTrial, other: StudyTrial) -> bool:
    return max(one.started, other.started) < min(one.ended, other.ended)


@pytest.mark.engine("slurm")
@pytest.mark.full
def test_two_trials_run_in_parallel(slurm: SlurmCluster, tmp_path: Path) -> None:
    tuner = started(slurm, tmp_path / "study", "--slurm=--exclusive", "--trials", "2", "--at-once", "2", "--json")
    printed, errors = tuner.communicate()
    assert tuner.returncode == 0, errors
    assert printed.startswith("{")
    first, second = read(tmp_path / "study").trials
    assert (first.outcome, second.outcome) == ("ok", "ok"), errors
    assert first.owner != second.owner
    assert overlap(first, second)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL])
@pytest.mark.engine("slurm")
def test_all_parallel_tuners_end_with_the_command(number: signal.Signals, slurm: SlurmCluster, tmp_path: Path) -> None:
    """An interrupted tuner releases its claims."""
    study = tmp_path / "study"
    tuner = started(slurm, study, "--trials", "4", "--at-once", "2", "--quiet")
    wait_until(lambda: len(list(study.glob("trials/*/launcher.meeting"))) == 2)
    wait_until(lambda: len(processes_of(study)) > 8)
    tuner.send_signal(number)
    tuner.communicate()
    wait_until(lambda: not processes_of(study))
    wait_until(lambda: not slurm.output_of("squeue", "--noheader"))
    temporary_files.sweep(str(study))  # Slurm may kill agents before they remove theirs
    if number == signal.SIGINT:
        assert {trial.state for trial in read(study).trials} <= {"queued", "finished"}


def test_parallel_trials_on_one_machine_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TUNE, "--study", str(tmp_path / "study"), "--at-once", "2"]) == 2
    assert "--at-once 2: has trials side by side, which disturb each other" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()
