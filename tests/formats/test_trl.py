"""Commands of TRL: its trainers' defaults differ from those of transformers."""

from pathlib import Path
from typing import Any

import pytest

from strategist import api
from strategist.formats.completed_config import GivenValues

ARGUMENTS = "--model_name_or_path m --per_device_train_batch_size 1"


def trained(folder: Path, command: str) -> dict[str, Any]:
    path = folder / "train.sh"
    path.write_text(command + "\n", encoding="utf-8")
    plan = api.import_plan(path, GivenValues(gpus="1x80GB", model="8b", workload={}, settings={})).plan
    assert plan is not None
    workload, knobs = plan.workload, plan.candidate.knobs
    return {"recompute": knobs.recompute, "precision": workload.precision, "seq_len": workload.seq_len, "train": workload.train}


DEFAULTS = {"recompute": "full", "precision": "bf16", "seq_len": 1024, "train": "full"}


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        (f"trl sft {ARGUMENTS}", {}),
        (f"python -m trl.scripts.sft {ARGUMENTS}", {}),
        (f"accelerate launch --num_processes 1 trl/scripts/dpo.py {ARGUMENTS}", {}),
        (f"trl sft {ARGUMENTS} --no_gradient_checkpointing --fp16", {"recompute": "none", "precision": "fp16"}),
        (f"trl sft {ARGUMENTS} --gradient_checkpointing False --max_seq_length 512", {"recompute": "none", "seq_len": 512}),
        (f"trl sft {ARGUMENTS} --use_peft", {"train": "lora"}),
        (f"python train.py {ARGUMENTS}", {"recompute": "none", "precision": "fp32", "seq_len": 4096}),
    ],
)
def test_arguments_that_a_command_of_trl_does_not_state(tmp_path: Path, command: str, changed: dict[str, Any]) -> None:
    assert trained(tmp_path, command) == DEFAULTS | changed


def test_defaults_hold_for_a_command_with_a_settings_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("model_name_or_path: m\nper_device_train_batch_size: 1\nmax_length: 512\n")
    assert trained(tmp_path, "trl sft --config recipe.yaml") == DEFAULTS | {"seq_len": 512}
