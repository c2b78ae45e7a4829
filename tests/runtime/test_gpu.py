"""Tests that need a GPU: each technique trains there like a single process on the CPU, and failures of trials."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from strategist.contract.environment import environment
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.model import MoEShape
from strategist.contract.options import Options

from .launch import SHORT, forked, records, run_alone, start_alone, trial_arguments
from .plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.timeout(300)]

MODEL = replace(TINY, layers=3, hidden_size=128, head_size=32, ffn_size=256, vocab_size=512)
EXPERTS = replace(MODEL, moe=MoEShape(experts=4, experts_per_token=2, expert_ffn_size=64))
WORK = replace(WORKLOAD, seq_len=64, global_batch=4, precision="bf16")
DEVICE = "cuda"
NEAR = 0.02
"""Relative tolerance of bf16 losses; three times as much for float8."""

TECHNIQUES = {
    "compile": {"knobs": Knobs(micro_batch=2, compile=True)},
    "compile and recompute": {"knobs": Knobs(compile=True, recompute="full")},
    "float8 tensorwise": {"knobs": Knobs(compile=True, float8="tensorwise")},
    "float8 rowwise": {"knobs": Knobs(compile=True, float8="rowwise")},
    "lora": {"workload": replace(WORK, train="lora")},
    "qlora": {"workload": replace(WORK, train="qlora")},
    "offload all": {"knobs": Knobs(offload="all")},
    "offload all in backward": {"knobs": Knobs(offload="all", optimizer_in_backward=True)},
    "async optimizer step": {"knobs": Knobs(offload="streamed", recompute="full", async_optimizer_step=True)},
    "grouped gemm": {"model": EXPERTS, "options": Options(grouped_gemm=True)},
}

SHARED = {
    "ddp": {"layout": Layout(dp_replicate=2)},
    "fsdp": {"layout": Layout(dp_shard=2)},
    "pp": {"layout": Layout(pp=2)},
    "tp compiled": {"layout": Layout(tp=2), "knobs": Knobs(sequence_parallel=True, compile=True)},
    "cp in a ring": {"layout": Layout(cp=2)},
    "cp gathered": {"layout": Layout(cp=2), "options": Options(cp_attention="flex")},
    "ep": {"layout": Layout(dp_shard=2, ep=2), "model": EXPERTS},
    "pp fsdp tp": {
        "layout": Layout(pp=2, dp_shard=2, tp=2),
        "knobs": Knobs(no_sync=True, reshard_after_forward=False, sequence_parallel=True, loss_parallel=True),
    },
}


def trained(folder, kind, settings=SHORT, **parts):
    folder.mkdir(exist_ok=True)
    trial_plan = plan(**{"model": MODEL, "workload": WORK, "kind": kind, **parts})
    code, record, errors = run_alone(trial_plan, folder, settings)
    assert code == 0, errors
    return record


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_technique_trains_on_a_gpu_like_on_the_cpu(name, tmp_path):
    parts = TECHNIQUES[name]
    knobs = replace(parts.get("knobs", Knobs()), compile=False, float8="none")
    on_gpu = trained(tmp_path / "device", DEVICE, **parts)
    on_cpu = trained(tmp_path / "cpu", "cpu", **{**parts, "knobs": knobs})
    np.testing.assert_allclose(on_gpu.losses, on_cpu.losses, rtol=3 * NEAR if "float8" in name else NEAR)
    assert on_gpu.peak_memory_bytes > 0


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The losses of one process on the CPU, by model."""
    return cache(lambda model: trained(tmp_path_factory.mktemp("cpu"), "cpu", model=model).losses)


@pytest.mark.parametrize("name", SHARED)
def test_ranks_that_share_a_gpu_train_like_a_single_process(name, reference, tmp_path):
    trial_plan = plan(**{"model": MODEL, "workload": WORK, "kind": DEVICE, **SHARED[name]})
    trial_plan = replace(trial_plan, cluster=replace(trial_plan.cluster, devices_share_one_gpu=True)).identified()
    done = forked(trial_plan.candidate.layout.world_size, trial_arguments(trial_plan, tmp_path))
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    losses = next(record.losses for record in found if record.losses)
    np.testing.assert_allclose(losses, reference(trial_plan.model), rtol=NEAR)
    assert all(record.communication_seconds > 0 for record in found)


def test_a_gpu_training_resumes_from_its_checkpoint(tmp_path):
    training = TrialSettings(total_steps=6, save=str(tmp_path / "saved"), save_every=3)
    whole = trained(tmp_path / "whole", DEVICE, replace(training, save=""))
    for offload, option in (("none", "async_pinned"), ("all", "sync")):
        part = replace(training, total_steps=3, save=str(tmp_path / offload))
        parts = {"knobs": Knobs(offload=offload), "options": Options(checkpoint=option, optimizer_kernel="fused")}
        first = trained(tmp_path / f"{offload} first", DEVICE, part, **parts)
        then = trained(tmp_path / f"{offload} then", DEVICE, replace(part, total_steps=6), **parts)
        np.testing.assert_allclose((*first.losses, *then.losses), whole.losses, rtol=NEAR)


def test_a_gpu_trial_without_enough_memory_ends_with_oom(tmp_path):
    large = replace(MODEL, hidden_size=2048, head_size=512, ffn_size=8192)
    trial_plan = plan(model=large, workload=WORK, kind=DEVICE, memory_bytes=2**28)
    code, record, _ = run_alone(trial_plan, tmp_path)
    assert (code, record.outcome) == (77, Outcome.OOM)


def test_expandable_segments_change_neither_losses_nor_peak_memory(tmp_path):
    trial_plan = plan(model=MODEL, workload=WORK, kind=DEVICE, options=Options(expandable_segments=True))
    process = start_alone(trial_arguments(trial_plan, tmp_path), **environment(trial_plan))  # torch reads the variable at import
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    (found,) = records(tmp_path)
    (tmp_path / "usual").mkdir()
    usual = trained(tmp_path / "usual", DEVICE)
    assert found.losses == usual.losses
    assert found.peak_memory_bytes == pytest.approx(usual.peak_memory_bytes, rel=0.02)


def test_a_machine_with_a_gpu_is_profiled(tmp_path):
    process = start_alone(["strategist_runtime.machine.profile", "--out", str(tmp_path), "--device", DEVICE])
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert (tmp_path / "machine.json").is_file()


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        (Layout(pp=2, dp_shard=2), {"knobs": Knobs(no_sync=True, reshard_after_forward=False)}),
        (Layout(tp=2, dp_shard=2), {"knobs": Knobs(sequence_parallel=True)}),
        (Layout(dp_shard=4, ep=4), {"model": EXPERTS}),
    ],
    ids=["pp", "tp", "ep"],
)
def test_a_shadow_rank_runs_on_a_gpu(layout, parts, tmp_path):
    trial_plan = plan(**{"layout": layout, "model": MODEL, "workload": WORK, "kind": DEVICE, **parts})
    done = forked(1, [*trial_arguments(trial_plan, tmp_path), "--shadow", "1"])
    assert done.returncode == 0, done.stderr
    (record,) = records(tmp_path)
    assert record.compute_seconds > 0
    assert {row.axis for row in record.traffic if row.calls} >= {"pp" if layout.pp > 1 else "tp" if layout.tp > 1 else "ep"}
