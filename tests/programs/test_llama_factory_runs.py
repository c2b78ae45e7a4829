"""The shipped program of LLaMA-Factory runs its own trainer on two gloo ranks, with a generated model and data."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from formats.frameworks import HERE, INSTALLED

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome

CONFIG = """
model_name_or_path: {folder}/model
stage: sft
dataset: words
dataset_dir: {folder}
template: default
overwrite_cache: true
learning_rate: 1.0e-4
"""
START = """#!/bin/sh
export PYTHONPATH={packages} HF_HUB_OFFLINE=1 DISABLE_VERSION_CHECK=1
exec {python} -m llamafactory.cli "$@"
"""


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.full
def test_llama_factory_trains_a_plan_on_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (installed := INSTALLED / "llama_factory").exists():
        pytest.skip("llama_factory is not installed: make frameworks")
    made = [sys.executable, "-P", str(HERE / "llama_factory_data.py"), str(tmp_path)]
    subprocess.run(made, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(installed)})
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path), encoding="utf-8")
    (tmp_path / "none" / "torchaudio").mkdir(parents=True)  # imported by the trainer, unused here
    (tmp_path / "none" / "torchaudio" / "__init__.py").touch()
    start = tmp_path / "bin" / "llamafactory-cli"
    start.parent.mkdir()
    packages = shlex.quote(f"{installed}:{tmp_path}/none")
    start.write_text(START.format(packages=packages, python=shlex.quote(sys.executable)), encoding="utf-8")
    start.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(start.parent), str(Path(sys.executable).parent), os.environ["PATH"])))
    monkeypatch.setenv("CONFIG_FILE", str(tmp_path / "config.yaml"))
    plan, out = tmp_path / "plan.json", tmp_path / "run"
    flags = ["--model", str(tmp_path / "model"), "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "8", "--precision", "fp32"]
    fixed = [word for name in ("dp_replicate=2", "recompute=full") for word in ("--fix", name)]
    assert main(["plan", *flags, *fixed, "--backend", "llama-factory", "-o", str(plan)]) == 0
    assert main(["run", str(plan), "--backend", "llama-factory", "--steps", "3", "--out", str(out)]) == 0
    measured = codec.load(Measurement, out / "measurement.json")
    assert measured.outcome is Outcome.OK, measured.evidence
    assert (measured.steps_measured, len(measured.losses)) == (3, 6)
    assert all(4 < loss < 8 for loss in measured.losses), "near the logarithm of 256 words"
