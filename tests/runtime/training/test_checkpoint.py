"""An interrupted training resumes as if uninterrupted, with any plan."""

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import plain_names
from strategist_runtime.training.checkpoint import make_states
from strategist_runtime.training.trainer import make_trainer
from torch.distributed.checkpoint.metadata import TensorProperties, TensorStorageMetadata

from strategist.contract import checkpoint, codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.options import Options

from ..cases_experts import MODELS
from ..launch import forked, records, run_alone, start_alone, trial_arguments
from ..plans import TINY, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

EXACT = 1e-5
SETTINGS = TrialSettings(total_steps=12, learning_rate_warmup_steps=3, save_every=2)
DEEP = replace(TINY, name="qwen deep", layers=4, qk_norm=True, tied_embeddings=True)
"""Embedding and head share one weight, on the first and the last stage of a pipeline."""

EXPERTS = MODELS["experts"]
WHOLE = Knobs(micro_batch=8)
"""One micro-batch per step of one process."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Losses and norms of twelve steps of one process without checkpoints."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    code, record, errors = run_alone(plan(model=DEEP, knobs=WHOLE), folder, SETTINGS)
    assert code == 0, errors
    return record.losses, record.grad_norms


SEQUENCE = {"micro_batch": 2, "sequence_parallel": True}
SESSIONS = {
    "deep": (
        (3, DEEP, Layout(dp_shard=4), {"micro_batch": 2}, {"checkpoint": "sync"}),
        (8, DEEP, Layout(pp=2, dp_shard=2), {"no_sync": True}, {"checkpoint": "async_pinned"}),
    ),
    "deep, tensor parallel": (
        (3, DEEP, Layout(dp_shard=4), {}, {"checkpoint": "sync"}),
        (6, DEEP, Layout(dp_shard=2, tp=2), SEQUENCE, {"checkpoint": "async", "shard_placement": "largest"}),
        (8, DEEP, Layout(pp=2, dp_shard=2), {"no_sync": True}, {"checkpoint": "async_pinned"}),
    ),
    "experts": (
        (3, EXPERTS, Layout(dp_replicate=2, dp_shard=2, ep=2), {"micro_batch": 2}, {"checkpoint": "async"}),
        (4, EXPERTS, Layout(dp_shard=2, tp=2, ep=2, etp=2), SEQUENCE, {}),
        (6, EXPERTS, Layout(pp=2, dp_shard=2, ep=2), {"no_sync": True}, {}),
        (8, EXPERTS, Layout(dp_shard=2, tp=2), {"micro_batch": 2, "offload": "optimizer"}, {}),
    ),
}
"""Sessions of each training: last step, model, layout, knobs and options."""


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """``interrupted(training)`` returns the folder of its checkpoints, and its losses."""

    @cache
    def run(training):
        folder = tmp_path_factory.mktemp("interrupted")
        codec.save(SETTINGS, folder / "settings.json")
        sessions = []
        for last, model, layout, knobs, options in SESSIONS[training]:
            path = folder / f"{training}-{last}.json"
            codec.save(plan(model=model, layout=layout, knobs=Knobs(**knobs), options=Options(**options)), path)
            sessions.append(f"{training}={last}={path}")
        done = forked(4, ["runtime.checkpoint_rank", str(folder), *sessions])
        assert done.returncode == 0, done.stdout + done.stderr
        return folder / training, json.loads((folder / "losses.json").read_text(encoding="utf-8"))[training]

    return run


@pytest.mark.parametrize("training", ["deep", pytest.param("deep, tensor parallel", marks=pytest.mark.full)])
def test_sessions_with_different_plans_have_the_losses_of_one_process(interrupted, uninterrupted, training):
    folder, losses = interrupted(training)
    np.testing.assert_allclose(losses, uninterrupted[0][:8], rtol=EXACT)
    assert [path.name for path in checkpoint.complete_checkpoints(folder)] == ["step-00000006", "step-00000008"]


@pytest.mark.full
def test_moe_and_host_optimizer_sessions_have_the_losses_of_one_process(interrupted, tmp_path):
    code, record, errors = run_alone(plan(model=EXPERTS), tmp_path, replace(SETTINGS, total_steps=8))
    assert code == 0, errors
    np.testing.assert_allclose(interrupted("experts")[1], record.losses, rtol=EXACT)


def test_two_ranks_resume_a_training_of_four(interrupted, uninterrupted, tmp_path):
    knobs = Knobs(micro_batch=2, pp_schedule="zbv_zero_bubble", pp_virtual_stages=2)  # first and last stage on one rank
    pipeline = plan(model=DEEP, layout=Layout(pp=2), knobs=knobs)
    settings = replace(SETTINGS, resume=str(interrupted("deep")[0]), save=str(tmp_path / "save"))
    done = forked(2, trial_arguments(pipeline, tmp_path, settings))
    assert done.returncode == 0, done.stderr
    record = next(record for record in records(tmp_path) if record.losses)
    np.testing.assert_allclose(record.losses, uninterrupted[0][8:], rtol=EXACT)
    np.testing.assert_allclose(record.grad_norms, uninterrupted[1][8:], rtol=EXACT)
    assert len(record.step_seconds) == 1  # two warm-up steps, and the last one is profiled
    last = checkpoint.read(checkpoint.find(tmp_path / "save"))
    assert (last.step, last.samples, last.ranks) == (12, 96, 2)


def test_a_training_killed_during_a_save_resumes_from_the_previous_checkpoint(tmp_path):
    save = tmp_path / "save"
    wide = plan(model=replace(DEEP, layers=1, vocab_size=8000, hidden_size=64), knobs=WHOLE, options=Options(checkpoint="async"))
    process = start_alone(trial_arguments(wide, tmp_path, replace(SETTINGS, save=str(save))))
    step = stop_during_save(process, save)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert checkpoint.read(checkpoint.find(save)).step == step - 2
    code, record, errors = run_alone(wide, tmp_path, replace(SETTINGS, save=str(save), resume=str(save)))
    assert code == 0, errors
    assert len(record.losses) == 12 - (step - 2)
    assert not list(save.glob(f"*{checkpoint.PARTIAL}"))


def stop_during_save(process: subprocess.Popen[str], save: Path) -> int:
    """Stops the process during a save other than its first, and returns the step of that save."""
    while True:
        assert process.poll() is None
        saving = [step for step in (4, 6, 8, 10, 12) if unfinished(save, step)]
        if not saving:
            time.sleep(0.001)
            continue
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until all its threads have stopped
        if unfinished(save, saving[-1]):
            return saving[-1]
        os.kill(process.pid, signal.SIGCONT)


def unfinished(save: Path, step: int) -> list[Path]:
    return [path for path in save.glob(f"{checkpoint.name_of(step)}.*{checkpoint.PARTIAL}") if "old-" not in path.name]


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_a_damaged_checkpoint_file_is_refused_in_one_line(interrupted, tmp_path, name):
    newest = checkpoint.find(interrupted("deep")[0])
    copy = tmp_path / newest.name
    shutil.copytree(newest, copy)
    size = (copy / name).stat().st_size
    (copy / name).write_bytes(bytes(size))
    code, record, errors = run_alone(plan(model=DEEP), tmp_path, replace(SETTINGS, resume=str(copy)))
    assert (code, record.outcome, errors) == (79, Outcome.REFUSED, "")
    assert f"{copy}: cannot be read, it is damaged: " in record.message
    assert "\n" not in record.message


def test_resuming_a_finished_training_is_refused(interrupted, tmp_path):
    settings = replace(SETTINGS, total_steps=8, resume=str(interrupted("deep")[0]))
    code, record, _ = run_alone(plan(model=DEEP), tmp_path, settings)
    assert (code, record.outcome) == (79, Outcome.REFUSED)
    assert "is at step 8 already" in record.message


def test_a_finished_checkpoint_can_be_exported(interrupted, tmp_path):
    source, model = checkpoint.find(interrupted("deep")[0]), tmp_path / "model"
    settings = replace(SETTINGS, total_steps=8, resume=str(source), export=str(model))
    code, record, errors = run_alone(plan(model=DEEP), tmp_path, settings)
    assert (code, record.outcome, record.step_seconds) == (0, Outcome.OK, ()), record.message + errors
    saved = {"model.embedding.weight": torch.empty(DEEP.vocab_size, DEEP.hidden_size)}
    dcp.load(saved, checkpoint_id=source, no_dist=True)
    exported = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(exported, saved["model.embedding.weight"])


def test_restarted_ranks_of_a_finished_training_succeed(interrupted, tmp_path):
    shutil.copytree(checkpoint.find(interrupted("deep")[0]), tmp_path / "save" / checkpoint.name_of(8))
    code, record, _ = run_alone(plan(model=DEEP), tmp_path, replace(SETTINGS, total_steps=8, save=str(tmp_path / "save")))
    assert (code, record.outcome, record.step_seconds) == (0, Outcome.OK, ()), record.message
    assert "all 8 steps were done and saved before" in record.notes


def test_fused_optimizer_step_counters_are_on_the_parameters_device():
    """Offloaded parameters are on the host, whatever the rank's device."""
    trainer = make_trainer(plan(options=Options(optimizer_kernel="fused")), SETTINGS, Meshes(), torch.device("cpu"))
    name, parameter = next(iter(plain_names(trainer.parts)))
    step = TensorStorageMetadata(properties=TensorProperties(dtype=torch.float32), size=torch.Size(()), chunks=[])
    make_states(replace(trainer, device=torch.device("meta")), {f"optimizer.{name}.step": step})
    assert trainer.optimizer.state[parameter]["step"].device == parameter.device
