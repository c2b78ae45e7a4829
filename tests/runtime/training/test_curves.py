"""Curves of a run: a line for each step, whatever was interrupted, and the learning rate in them."""

import json
import math
from dataclasses import replace

import pytest
import torch
from strategist_runtime.training.curves import Curves
from strategist_runtime.training.schedule import learning_rate_share, set_learning_rate
from strategist_runtime.training.trainer import StepResult
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from strategist.contract.measurement import TrialSettings
from strategist.errors import FileError

from ..launch import run_alone
from ..plans import plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(150)]

SETTINGS = TrialSettings(total_steps=6, learning_rate=0.01, learning_rate_warmup_steps=2, learning_rate_schedule="cosine")
RATES = [0.005, 0.01, 0.01, *(0.005 * (1 + math.cos(math.pi * share)) for share in (0.25, 0.5, 0.75))]


def lines(folder):
    return [json.loads(line) for line in (folder / "curves.jsonl").read_text(encoding="utf-8").splitlines()]


def add(curves, step):
    result = StepResult(loss=4.0 - step, grad_norm=1.0)
    curves.add(step, result, learning_rate=0.1, tokens_per_second=10.0, memory_bytes=100)


def test_each_step_of_a_training_has_a_line_and_a_point(tmp_path):
    folder = tmp_path / "curves"
    settings = replace(SETTINGS, log=str(folder), save=str(tmp_path / "save"), save_every=4)
    code, record, errors = run_alone(plan(), tmp_path, settings)
    assert code == 0, errors
    found = lines(folder)
    assert [line["step"] for line in found] == list(range(6))
    assert [line["loss"] for line in found] == list(record.losses)
    assert [line["learning_rate"] for line in found] == pytest.approx(RATES)
    assert all(line["tokens_per_second"] > 0 and line["memory_bytes"] > 0 and line["grad_norm"] > 0 for line in found)
    board = EventAccumulator(str(folder)).Reload()
    assert [point.step for point in board.Scalars("loss")] == list(range(6))
    assert [point.value for point in board.Scalars("loss")] == pytest.approx(record.losses)


def test_a_session_that_goes_on_takes_back_what_is_done_again(tmp_path):
    first = Curves(tmp_path, 0)
    for step in range(4):
        add(first, step)
    first.close()
    with (tmp_path / "curves.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 1, "lo')  # of a rank that was killed
    second = Curves(tmp_path, 2)
    for step in range(2, 5):
        add(second, step)
    second.close()
    assert [line["step"] for line in lines(tmp_path)] == list(range(5))
    assert [point.step for point in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == list(range(5))


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        Curves(tmp_path / "file", 0)


def test_a_rate_stays_where_nothing_is_asked():
    assert [learning_rate_share(TrialSettings(), step) for step in (0, 5, 10**9)] == [1.0, 1.0, 1.0]


def test_groups_with_rates_of_their_own_keep_their_ratio():
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.001}], lr=0.01)
    for step, rate in enumerate(RATES):
        set_learning_rate(optimizer, SETTINGS, step)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([rate, rate / 10])
