"""The pre-commit hook and the GitHub Action check config files like the command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from formats.frameworks import parsed

from strategist.files import yaml_file

ROOT = Path(__file__).parents[1]
CONFIG = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository with two configurations."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.json").write_text(json.dumps(CONFIG))
    (tmp_path / "configs" / "b.json").write_text(json.dumps({**CONFIG, "train_micro_batch_size_per_gpu": 64}))
    return tmp_path


def run_action(repository: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Runs the action's last step with the inputs of a workflow."""
    step = yaml_file.load(ROOT / "action.yml").data["runs"]["steps"][-1]
    assert set(step["env"].values()) == {f"${{{{ inputs.{name} }}}}" for name in inputs}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **{name.upper(): value for name, value in inputs.items()}}
    command = ["bash", "-e", "-c", step["run"]]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)


def test_the_action_annotates_configs_that_do_not_fit(repository: Path) -> None:
    done = run_action(repository, files="configs/*.json", gpus="8xH100", model="8b", arguments="--seq-len 4096")
    assert done.returncode == 1, done.stderr
    assert "::error file=configs/b.json" in done.stdout
    assert "::error file=configs/a.json" not in done.stdout
    fine = run_action(repository, files="configs/a.json", gpus="8xH100", model="8b", arguments="--seq-len 4096 --train full")
    assert fine.returncode == 0, fine.stderr


def test_the_action_never_executes_its_inputs(repository: Path) -> None:
    done = run_action(repository, files="configs/a.json", gpus="$(touch canary)", model="; touch canary", arguments="")
    assert done.returncode == 2
    assert not (repository / "canary").exists()


@pytest.mark.full
def test_pre_commit_accepts_the_hook() -> None:
    [hook] = parsed("pre_commit", [str(ROOT / ".pre-commit-hooks.yaml")])
    assert hook["entry"] == "strategist check"
    assert {"json", "yaml", "toml"} <= set(hook["types_or"])
