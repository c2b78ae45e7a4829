"""Checkpoint folders: which are complete, which is the newest, and which plans can resume from them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import DESCRIPTION, Training
from strategist.contract.data_source import DataSource
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload
from strategist.errors import FileError, InputError

MODEL = ModelShape(name="small", layers=2, hidden_size=8, heads=2, kv_heads=2, head_size=4, ffn_size=16, vocab_size=32)
TRAINING = Training(
    step=4, samples=32, settings=TrialSettings(), model=MODEL, workload=Workload(), plan_id="p", ranks=2, files={"part": 5}
)


def checkpoint_folder(folder: Path, step: int) -> Path:
    path = folder / checkpoint.name_of(step)
    path.mkdir(parents=True)
    (path / "part").write_bytes(b"state")
    codec.save(replace(TRAINING, step=step), path / DESCRIPTION)
    return path


def test_the_newest_complete_checkpoint_is_found(tmp_path):
    for step in (100_000_000, 20, 3):
        checkpoint_folder(tmp_path, step)
    (tmp_path / "step-99999999999.partial").mkdir()
    (tmp_path / "notes").mkdir()
    assert [checkpoint.step_of(path) for path in checkpoint.complete_checkpoints(tmp_path)] == [3, 20, 100_000_000]
    assert checkpoint.find(tmp_path) == tmp_path / "step-100000000"
    assert checkpoint.find(tmp_path / "step-00000020") == tmp_path / "step-00000020"
    assert checkpoint.read(checkpoint.find(tmp_path)).step == 100_000_000


def test_partial_checkpoints_are_ignored(tmp_path):
    (tmp_path / "step-00000004.partial").mkdir()
    assert checkpoint.complete_checkpoints(tmp_path) == ()
    with pytest.raises(InputError, match="holds no whole checkpoint"):
        checkpoint.find(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        checkpoint.find(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: (path / "part").unlink(), "is missing of the 5 that were saved"),
        (lambda path: os.truncate(path / "part", 3), "has 3 bytes of the 5 that were saved"),
        (lambda path: (path / DESCRIPTION).unlink(), "not a checkpoint of strategist"),
        (lambda path: (path / DESCRIPTION).write_text("{"), "not a JSON document"),
    ],
)
def test_a_damaged_checkpoint_raises_a_one_line_error(tmp_path, damage, words):
    path = checkpoint_folder(tmp_path, 4)
    damage(path)
    with pytest.raises(FileError, match=words) as caught:
        checkpoint.read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("model", "workload", "words"),
    [
        (replace(MODEL, name="large"), Workload(), "it holds small, the plan trains large"),
        (replace(MODEL, ffn_size=24), Workload(), "its small has another shape than the plan's"),
        (MODEL, Workload(optimizer="sgd"), "it was trained with optimizer adamw, the plan has sgd"),
        (MODEL, Workload(train="lora"), "it was trained with train full, the plan has lora"),
    ],
)
def test_a_checkpoint_of_another_model_or_workload_is_refused(model, workload, words):
    with pytest.raises(InputError, match=words):
        checkpoint.check(TRAINING, Path("here"), model, workload)


def test_batch_and_sequence_length_may_change_on_resume():
    checkpoint.check(TRAINING, Path("here"), MODEL, Workload(global_batch=2, seq_len=8, lora_rank=3))


@pytest.mark.parametrize("total", [1, 2, 3, 10])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_training_session_runs_each_step_exactly_once(total, first):
    course = TrialSettings(total_steps=first + total).course(first)
    assert [*course.warmup, *course.measured, course.profiled] == list(range(first, first + total))
    assert len(course.measured) > 0 or total == 1


def test_a_trial_measures_the_requested_number_of_steps():
    course = TrialSettings(steps=5, warmup_steps=2).course(0)
    assert (course.warmup, course.measured, course.profiled) == (range(2), range(2, 7), 7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate_schedule": "wild"}, {"learning_rate_schedule": "linear"}, {"data_type": "float"}, {"keep": 0},
        {"save_every": 0}, {"save": "here"},
        {"learning_rate_schedule": "cosine"},
    ],
)  # fmt: skip
def test_invalid_trial_settings_are_refused(wrong):
    with pytest.raises(InputError):
        TrialSettings(**wrong)


@pytest.mark.parametrize(
    ("data", "tokenizer", "resumed"),
    [("a.jsonl", "", "base"), ("a.jsonl", "other", "other"), ("a.bin", "", ""), ((DataSource(path="a.jsonl"),), "", "base")],
)
@pytest.mark.parametrize("field", ["data", "evaluation_data"])
def test_examples_keep_the_tokenizer_of_the_first_weights(field, data, tokenizer, resumed):
    settings = TrialSettings(total_steps=4, weights="base", tokenizer=tokenizer, **{field: data})
    found = replace(TRAINING, settings=settings).resume_settings()
    assert (found.weights, found.tokenizer) == ("", resumed)
