"""TorchTitan's own trainer, started by the shipped program and by exported files, on two gloo ranks with a debug model."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from formats.frameworks import HERE, INSTALLED
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome
from strategist.paths import data_dir

CONFIGURATION = """
from torchtitan.models.llama3.config_registry import llama3_debugmodel


def small():
    config = llama3_debugmodel()
    config.hf_assets_path = "FOLDER"
    config.dataloader.dataset_path = "FOLDER/texts"
    config.parallelism.spmd_backend = "partial_dtensor"  # the others need torch's nightly builds
    return config
"""


def write_small_run(folder: Path) -> None:
    """Writes a configuration, a character tokenizer and some text."""
    letters = {
        "<unk>": 0,
        "<bos>": 1,
        "<eos>": 2,
        **{letter: 3 + place for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz ")},
    }
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>"}), encoding="utf-8")
    (folder / "texts").mkdir()
    line = json.dumps({"text": "the quick brown fox jumps over the lazy dog " * 20})
    (folder / "texts" / "data.json").write_text(f"{line}\n" * 300, encoding="utf-8")
    (folder / "titan_small.py").write_text(CONFIGURATION.replace("FOLDER", str(folder)), encoding="utf-8")


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "fixed", [["dp_shard=2", "recompute=full"], ["dp_replicate=2", "micro_batch=1"]], ids=lambda fixed: fixed[0]
)
@pytest.mark.full
def test_the_shipped_program_trains_a_plan(fixed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's file is unchanged except for its device type, since TorchTitan has no CPU."""
    if not (INSTALLED / "torchtitan").exists():
        pytest.skip("torchtitan is not installed: make frameworks")
    write_small_run(tmp_path)
    places = (HERE / "torchtitan_cpu", INSTALLED / "torchtitan", tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MODULE", "titan_small")
    monkeypatch.setenv("CONFIG", "small")
    shipped = (data_dir("profiles") / "programs" / "torchtitan.yaml").read_text(encoding="utf-8")
    program = tmp_path / "torchtitan.yaml"
    program.write_text(shipped.replace("devices: [cuda]\n", "devices: [cpu]\n"), encoding="utf-8")
    plan, out = tmp_path / "plan.json", tmp_path / "run"
    arguments = ["--model", "tiny", "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "4", "--precision", "fp32"]
    fixes = [word for setting in [*fixed, "compile=false"] for word in ("--fix", setting)]
    assert main(["plan", *arguments, *fixes, "--backend", str(program), "-o", str(plan)]) == 0
    assert main(["run", str(plan), "--backend", str(program), "--steps", "3", "--out", str(out)]) == 0
    measured = codec.load(Measurement, out / "measurement.json")
    assert measured.outcome is Outcome.OK
    assert len(measured.losses) >= 3
    assert measured.losses[-1] < measured.losses[0]
    assert measured.tokens_per_second is not None
    assert measured.tokens_per_second > 0


RELEASES = {
    "0.3": (("torchtitan",), ("bash", "train.sh")),
    "0.2": (
        ("torchtitan_older", "torchtitan"),
        ("torchrun", "--standalone", "--nproc-per-node=2", "-m", "torchtitan.train", "--job.config_file=titan_plan.toml"),
    ),
}
"""Folders of each release and its requirements, and the command that starts an export with it."""

SMALLER = {
    "llama3_8b": "llama3_debugmodel",
    'flavor = "8B"': 'flavor = "debugmodel"',
    "    return config\n": "    config.parallelism.spmd_backend = 'partial_dtensor'\n    return config\n",
}
"""The only changes of the files: a debug model, and a back end that does not need torch's nightly builds."""


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.full
def test_exported_files_train_with_both_releases(release: str, tmp_path: Path) -> None:
    """Data and tokenizer are those given to the export."""
    folders, command = RELEASES[release]
    if missing := next((name for name in folders if not (INSTALLED / name).exists()), ""):
        pytest.skip(f"{missing} is not installed: make frameworks")
    write_small_run(tmp_path)
    arguments = ["plan", "--model", "8b", "--gpus", "2xB200", "--seq-len", "64", "--global-batch", "4", "--precision", "fp32"]
    fixed = ["--fix", "dp_shard=2,recompute=full,compile=false,offload=none,micro_batch=1"]
    inputs = ["--data", str(tmp_path / "texts"), "--tokenizer", str(tmp_path)]
    assert main([*arguments, *fixed, *inputs, "--to", "torchtitan", "--job-output", str(tmp_path / "out")]) == 0
    for path in (tmp_path / "out").iterdir():
        text = path.read_text(encoding="utf-8")
        for old, new in SMALLER.items():
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    places = (HERE / "torchtitan_cpu", *(INSTALLED / name for name in folders), tmp_path / "out")
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    flags = ["--training.steps=3", "--metrics.log_freq=1", "--metrics.disable_color_printing"]
    done = subprocess.run([*command, *flags], cwd=tmp_path / "out", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(loss) for loss in re.findall(r"step: .*?loss:\s+([\d.]+)", done.stdout + done.stderr)]
    assert len(losses) == 6  # of two ranks
    assert losses[-1] < losses[0]
