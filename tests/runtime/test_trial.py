"""A trial as started by torchrun: the records that each rank leaves, however the trial ends."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.options import Options
from strategist.units import MIB

from .launch import ALONE, ENVIRONMENT, NO_COMPILER, SHORT, forked, records, run_alone, start_alone, torchrun, trial_arguments
from .plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(150)]

LONG = TrialSettings(steps=100_000, warmup_steps=1, step_timeout_seconds=3)


def wait_for(path: Path, words: str) -> None:
    """Waits until the file contains ``words``; otherwise the test's timeout ends it."""
    while not path.exists() or words not in path.read_text(encoding="utf-8"):
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_each_rank_writes_its_record(tmp_path):
    done = torchrun(2, trial_arguments(plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2)), tmp_path))
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert [(record.rank, record.outcome, record.phase) for record in found] == [(0, Outcome.OK, "done"), (1, Outcome.OK, "done")]
    assert found[0].losses == found[1].losses
    assert found[0].grad_norms == found[1].grad_norms
    for record in found:
        assert (len(record.step_seconds), len(record.losses), len(record.grad_norms)) == (2, 3, 3)
        assert 0 < record.exposed_communication_seconds <= record.communication_seconds < record.profiled_step_seconds
        assert record.peak_memory_bytes > 16 * TINY.parameters / 2
        assert record.versions["torch"]
        assert (tmp_path / f"rank-{record.rank}.phase").read_text(encoding="utf-8").startswith("done ")


def test_progress_has_a_line_for_each_step(tmp_path):
    code, record, _ = run_alone(plan(), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    assert code == 0
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert [line["phase"] for line in lines] == ["warm-up", "measure", "measure"]
    assert [line["loss"] for line in lines] == list(record.losses)


def test_the_loss_decreases(tmp_path):
    settings = TrialSettings(steps=40, warmup_steps=0, learning_rate=1e-2)
    _, record, _ = run_alone(plan(knobs=Knobs(micro_batch=8)), tmp_path, settings)
    assert record.losses[-1] < 0.75 * record.losses[0]


def test_a_plan_beyond_the_memory_of_its_device_runs_out_of_memory(tmp_path):
    large = plan(model=replace(TINY, hidden_size=512, ffn_size=2048), memory_bytes=32 * MIB)
    code, record, _ = run_alone(large, tmp_path)
    assert (code, record.outcome) == (77, Outcome.OOM)
    assert "allocate" in record.message
    assert record.phase in ("build", "warm-up")


def test_the_same_plan_runs_with_enough_memory(tmp_path):
    large = plan(model=replace(TINY, hidden_size=512, ffn_size=2048), memory_bytes=256 * MIB)
    code, record, errors = run_alone(large, tmp_path)
    assert (code, record.outcome) == (0, Outcome.OK), errors
    assert 32 * MIB < record.peak_memory_bytes < 256 * MIB


@pytest.mark.engine("torchrun")
def test_a_rank_out_of_memory_ends_its_peers(tmp_path):
    large = plan(layout=Layout(dp_replicate=2), model=replace(TINY, hidden_size=512, ffn_size=2048), memory_bytes=32 * MIB)
    done = forked(2, trial_arguments(large, tmp_path))
    assert done.returncode != 0
    assert Outcome.OOM in [record.outcome for record in records(tmp_path)]


@pytest.mark.engine("torchrun")
def test_a_diverging_training_ends_with_nan(tmp_path):
    settings = TrialSettings(steps=20, learning_rate=1e30)
    sgd = plan(workload=replace(WORKLOAD, optimizer="sgd"))
    code, record, _ = run_alone(sgd, tmp_path, settings)
    assert (code, record.outcome) == (78, Outcome.NAN)
    assert "step" in record.message
    assert len(record.losses) < 20


def test_a_plan_that_cannot_run_is_refused_before_torch_is_imported(tmp_path):
    code, record, errors = run_alone(plan(model=replace(TINY, activation="unheard_of")), tmp_path)
    assert (code, record.outcome, record.phase) == (79, Outcome.REFUSED, "spawn")
    assert record.message.startswith("activation unheard_of: ")
    assert errors == ""


def test_missing_environment_variables_of_the_plan_are_refused(tmp_path):
    with_variables = plan(kind="cuda", options=Options(nccl_algorithm="ring", cuda_connections=1))
    code, record, _ = run_alone(with_variables, tmp_path, NCCL_ALGO="Tree")
    assert (code, record.outcome, record.phase) == (79, Outcome.REFUSED, "spawn")
    assert record.message.endswith("start the ranks with NCCL_ALGO=Ring CUDA_DEVICE_MAX_CONNECTIONS=1")
    _, record, _ = run_alone(with_variables, tmp_path, NCCL_ALGO="Ring", CUDA_DEVICE_MAX_CONNECTIONS="1")
    assert "NCCL_ALGO" not in record.message


@pytest.mark.full
def test_budget_recomputation_reduces_the_peak(tmp_path):
    wide = replace(TINY, hidden_size=64, ffn_size=128, layers=4)
    peaks = []
    for knobs in (Knobs(), Knobs(recompute="budget", recompute_budget_percent=10)):
        budgeted = plan(model=wide, workload=replace(WORKLOAD, seq_len=128), knobs=replace(knobs, compile=True, micro_batch=8))
        code, record, errors = run_alone(budgeted, tmp_path, **NO_COMPILER)
        assert code == 0, errors
        peaks.append(record.peak_memory_bytes)
    assert peaks[1] < 0.7 * peaks[0]  # parameters and logits remain


def test_too_few_ranks_are_refused(tmp_path):
    code, record, _ = run_alone(plan(layout=Layout(dp_shard=2)), tmp_path)
    assert (code, record.outcome) == (79, Outcome.REFUSED)
    assert "1 ranks: the plan is for 2" in record.message


def test_missing_devices_are_refused(tmp_path):
    code, record, _ = run_alone(plan(layout=Layout(), kind="cuda"), tmp_path)
    if code == 0:
        assert record.versions["cuda"]  # the machine has one
    else:
        assert (code, record.outcome) == (79, Outcome.REFUSED)
        assert "needs a cuda device, it has 0" in record.message


def test_an_invalid_plan_file_is_refused_with_its_path(tmp_path):
    (tmp_path / "plan.json").write_text("{", encoding="utf-8")
    process = start_alone(["strategist_runtime", str(tmp_path / "plan.json"), "--out", str(tmp_path)])
    assert process.wait(60) == 79
    (record,) = records(tmp_path)
    assert "plan.json" in record.message


def test_without_a_launcher_a_one_line_error_names_torchrun(tmp_path):
    arguments = [sys.executable, "-m", *trial_arguments(plan(), tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "torchrun" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_sigterm_leaves_a_cancelled_record(tmp_path):
    process = start_alone(trial_arguments(plan(), tmp_path, LONG))
    wait_for(tmp_path / "rank-0.phase", "measure")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1
    (record,) = records(tmp_path)
    assert (record.outcome, record.phase) == (Outcome.CANCELLED, "measure")


def test_a_rank_dies_with_its_parent(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()", sys.executable, "-m",
         *trial_arguments(plan(), tmp_path, LONG)],
        env={**ENVIRONMENT, **ALONE},
    )  # fmt: skip
    wait_for(tmp_path / "rank-0.phase", "measure")
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text(encoding="ascii").split()
    parent.kill()
    parent.wait()
    while is_alive(int(child)):
        time.sleep(0.02)
    assert records(tmp_path) == []


@pytest.mark.engine("torchrun")
def test_a_stopped_peer_ends_the_others_after_the_step_timeout(tmp_path):
    settings = replace(LONG, step_timeout_seconds=2)
    done = forked(2, ["runtime.stopping_rank", *trial_arguments(plan(layout=Layout(dp_shard=2)), tmp_path, settings)])
    assert done.returncode != 0
    (record,) = records(tmp_path)
    assert (record.rank, record.outcome) == (0, Outcome.CRASH)
    assert "imed out" in record.message or "imeout" in record.message


def test_a_trial_without_settings_uses_the_defaults(tmp_path):
    done = forked(1, trial_arguments(plan(knobs=Knobs(micro_batch=8)), tmp_path, SHORT)[:-2])
    assert done.returncode == 0, done.stderr
    (record,) = records(tmp_path)
    assert len(record.step_seconds) == TrialSettings().steps
