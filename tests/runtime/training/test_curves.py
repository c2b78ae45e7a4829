"""Training curves: one row per step in every file, even after interruptions."""

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from strategist_runtime.training.curves import COLUMNS, Curves, Row
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from strategist.contract.measurement import TrialSettings
from strategist.errors import FileError, InputError

from ..launch import run_alone
from ..plans import plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(150)]

SETTINGS = TrialSettings(total_steps=6, learning_rate=0.01, learning_rate_warmup_steps=2, learning_rate_schedule="cosine")
RATES = [0.005, 0.01, 0.01, *(0.005 * (1 + math.cos(math.pi * share)) for share in (0.25, 0.5, 0.75))]
ROW = Row(
    step=0, samples=8, tokens=128, loss=4.0, grad_norm=1.0, learning_rate=0.1, evaluation_loss=None, seconds=1.0,
    tokens_per_second=128.0, mfu=None, memory_bytes=100, skipped=False,
)  # fmt: skip
WANDB = """
import json, pathlib
class Run:
    def __init__(self, folder, first):
        self.file = (pathlib.Path(folder) / "sent.jsonl").open("a"); self.write(first)
    def write(self, value): self.file.write(json.dumps(value) + "\\n")
    def log(self, figures, step): self.write({"step": step, **figures})
    def finish(self): self.file.close()
def init(*, project, id, resume, dir, config):
    return Run(dir, {"project": project, "id": id, "resume": resume, "plan": config["plan"]})
"""
"""A fake module that records its calls."""


def rows(folder):
    return [json.loads(line) for line in (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()]


def table(folder):
    with (folder / "curves.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def add(curves, step):
    curves.add(replace(ROW, step=step, loss=4.0 - step, evaluation_loss=2.0 if step == 1 else None))


def test_each_step_has_a_row_and_a_tensorboard_point(tmp_path):
    folder = tmp_path / "curves"
    settings = replace(SETTINGS, log=str(folder), save=str(tmp_path / "save"), save_every=4)
    code, record, errors = run_alone(plan(), tmp_path, settings)
    assert code == 0, errors
    found = rows(folder)
    assert [row["step"] for row in found] == list(range(6))
    assert [row["loss"] for row in found] == list(record.losses)
    assert [row["learning_rate"] for row in found] == pytest.approx(RATES)
    assert [row["samples"] for row in found] == [8, 16, 24, 32, 40, 48]
    assert all(row["tokens"] == 16 * row["samples"] for row in found)
    assert all(row["tokens_per_second"] > 0 and row["seconds"] > 0 and row["grad_norm"] > 0 for row in found)
    assert all(0 < row["memory_bytes"] < 4 * max(found[-1]["memory_bytes"], record.peak_memory_bytes) for row in found)
    assert [float(row["loss"]) for row in table(folder)] == list(record.losses)
    board = EventAccumulator(str(folder)).Reload()
    assert [point.step for point in board.Scalars("loss")] == list(range(6))
    assert [point.value for point in board.Scalars("loss")] == pytest.approx(record.losses)


def test_a_resumed_session_replaces_rows_of_repeated_steps(tmp_path):
    first = Curves(tmp_path, 0)
    for step in range(4):
        add(first, step)
    first.close()
    with (tmp_path / "curves.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 1, "lo')  # by a rank that was killed
    second = Curves(tmp_path, 2)
    for step in range(2, 5):
        add(second, step)
    second.close()
    assert [row["step"] for row in rows(tmp_path)] == list(range(5))
    assert [row["step"] for row in table(tmp_path)] == ["0", "1", "2", "3", "4"]
    assert [point.step for point in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == list(range(5))


def test_the_csv_table_has_a_column_per_figure_and_empty_cells_for_missing_ones(tmp_path):
    curves = Curves(tmp_path, 0)
    add(curves, 0)
    add(curves, 1)
    curves.close()
    assert tuple(table(tmp_path)[0]) == COLUMNS
    assert [row["evaluation_loss"] for row in table(tmp_path)] == ["", "2.0"]
    assert [row["evaluation_loss"] for row in rows(tmp_path)] == [None, 2.0]


def test_wandb_logs_every_step_under_one_run_id(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(WANDB, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for first in (0, 1):
        curves = Curves(tmp_path / "log", first, wandb="project", config={"plan": "p"})
        add(curves, first)
        curves.close()
    monkeypatch.delitem(sys.modules, "wandb")
    started, sent, again, more = map(json.loads, (tmp_path / "log" / "sent.jsonl").read_text().splitlines())
    assert started == again
    assert (started["project"], started["resume"], started["plan"], len(started["id"])) == ("project", "allow", "p", 8)
    assert (sent["step"], sent["loss"], more["evaluation_loss"]) == (0, 4.0, 2.0)


def test_a_missing_wandb_package_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("strategist_runtime.training.curves.find_spec", lambda name: None)
    with pytest.raises(InputError, match="--wandb project: needs wandb, which is not installed; pip install"):
        Curves(tmp_path, 0, wandb="project")


def test_an_unwritable_folder_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        Curves(tmp_path / "file", 0)
