"""The exported script is run, on gloo: every layout goes on from one process's checkpoint, and computes what one process does."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from formats.plans import deck
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.pytorch import write
from strategist.planner import price_candidate
from strategist.profiles.situation import situation

pytestmark = pytest.mark.torch
STEPS = 3
CASES: dict[str, tuple[dict, dict]] = {
    "fsdp": ({"dp_shard": 4}, {"recompute": "selective"}),
    "hsdp": (
        {"dp_shard": 2, "dp_replicate": 2},
        {"reshard_after_forward": False, "postpone_gradient_sync": True, "recompute": "full"},
    ),
    "ddp": ({"dp_replicate": 2}, {"postpone_gradient_sync": True, "recompute": "alternate"}),
    "tp x fsdp": (
        {"tp": 2, "dp_shard": 2},
        {
            "sequence_parallel": True, "loss_parallel": True, "micro_batch": 2, "recompute": "selective",
            "saved_operations": "every_second_matmul+attention+collectives",
        },
    ),
    "tp": ({"tp": 2}, {"micro_batch": 2}),
    "pp x fsdp": ({"pp": 2, "dp_shard": 2}, {"postpone_gradient_sync": True}),
    "interleaved": ({"pp": 2}, {"postpone_gradient_sync": True, "pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2}),
    "pp x tp": ({"pp": 2, "tp": 2}, {"postpone_gradient_sync": True, "sequence_parallel": True, "loss_parallel": True}),
    "offload": ({"dp_shard": 2}, {"offload": "all"}),
}  # fmt: skip


def planned(layout: dict, knobs: dict) -> Plan:
    devices = Layout(**layout).world_size
    asked = situation(Request(model="tiny", gpus=f"{devices}xcpu", workload=Workload(seq_len=64, global_batch=8, precision="fp32")))
    return price_candidate(asked, Candidate(layout=Layout(**layout), knobs=Knobs(**knobs)), deck=deck())


def losses(plan: Plan, folder: Path, *arguments: str) -> list[float]:
    """What the script prints, as its own start script runs it."""
    folder.mkdir(parents=True)
    written = write(plan, {})
    for file in written.files:
        (folder / file.name).write_text(file.text)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [*written.command, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(line.split()[3]) for line in done.stdout.splitlines() if line.startswith("step ")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A checkpoint of one process, and the losses of its next steps."""
    place, plan = tmp_path_factory.mktemp("alone"), planned({}, {"micro_batch": 4})
    checkpoint = place / "checkpoint"
    losses(plan, place / "begin", "--steps", "1", "--save", str(checkpoint))
    return checkpoint, losses(plan, place / "go-on", "--steps", str(STEPS), "--resume", str(checkpoint))


@pytest.mark.parametrize("name", CASES)
def test_each_layout_computes_what_one_process_does(name: str, alone: tuple[Path, list[float]], tmp_path: Path) -> None:
    checkpoint, expected = alone
    found = losses(planned(*CASES[name]), tmp_path / "run", "--steps", str(STEPS), "--resume", str(checkpoint))
    assert found == pytest.approx(expected, rel=2e-6)
    assert len(set(expected)) == STEPS


@cache
def text_of(name: str) -> str:
    return write(planned(*CASES[name]), {}).files[0].text


def test_a_script_holds_what_its_plan_needs_and_no_more() -> None:
    plain, tensor, pipeline = text_of("ddp"), text_of("tp x fsdp"), text_of("interleaved")
    assert "fully_shard" not in plain
    assert "parallelize_module" in tensor
    assert "parallelize_module" not in pipeline
    assert "get_schedule_class" in pipeline
    for text in (plain, tensor, pipeline):
        assert "# if:" not in text
        assert "strategist" not in text.partition("import argparse")[2]


def test_ruff_finds_nothing_in_a_script(tmp_path: Path) -> None:
    for name in CASES:
        (tmp_path / f"{name.replace(' ', '_')}.py").write_text(text_of(name))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length=132", "--ignore=E402", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
