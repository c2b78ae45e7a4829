"""Engine options are checked before any rank starts."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from strategist.cli.main import main


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "plan.json"
    assert main(["plan", "--model", "tiny", "--gpus", "4xcpu", "--backend", "native", "-o", str(path)]) == 0
    capsys.readouterr()
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "lsf"], "--engine lsf: is not known; choose one of torchrun, slurm, ray"),
        (["--hosts", "a,a"], "--hosts a,a: each host is named once"),
        (["--hosts", "a,b,c"], "4 ranks on 3 hosts: are not equally many on each"),
        (["--remote-shell", "ssh {host} {command}"], "--remote-shell: is for --engine torchrun with --hosts"),
        (["--hosts", "a,b", "--remote-shell", "ssh"], "--remote-shell ssh: has no place for {host} and {command}"),
        (["--slurm=--partition=gpu"], "--slurm: is for --engine slurm"),
        (["--engine", "slurm", "--hosts", "a"], "--hosts: is for --engine torchrun"),
        (["--ray", "auto"], "--ray: is for --engine ray"),
        (["--engine", "ray", "--slurm", "x"], "--slurm: is for --engine slurm"),
        (["--engine", "ray", "--ray", "ray://head:10001"], "--ray ray://head:10001: is not the address of a cluster"),
        (["--engine", "slurm", "--slurm", "'x"], "--slurm 'x: are not shell words"),
        (["--hosts", "a,b", "--elastic", "--save", "kept", "--steps", "5"], "engine hosts: starts no training that is elastic"),
    ],
)
def test_a_wrong_engine_option_prints_one_error_line(
    options: list[str], message: str, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(plan), *options]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not plan.with_name("plan-run").exists()


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
def test_a_missing_ray_prints_how_to_install_ray(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(plan), "--engine", "ray"]) == 2
    assert "--engine ray: ray is not installed here; pip install 'torch-strategist[ray]'" in capsys.readouterr().err
    assert not plan.with_name("plan-run").exists()
