"""Trials with known traffic: each collective has its expected bytes, and parts sum to the step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.executors.trial_metrics import figures

from ..launch import forked, records, run_alone, trial_arguments
from ..plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]
MODEL = replace(TINY, layers=4, hidden_size=128, heads=4, kv_heads=4, head_size=32, ffn_size=384)
SETTINGS = TrialSettings(steps=2, warmup_steps=1)
WORK = replace(WORKLOAD, seq_len=64)


def measured(layout: Layout, knobs: Knobs, folder: Path, settings: TrialSettings = SETTINGS) -> dict[str, Any]:
    trial_plan = plan(layout=layout, knobs=knobs, model=MODEL, workload=WORK)
    done = forked(layout.world_size, trial_arguments(trial_plan, folder, settings))
    assert done.returncode == 0, done.stderr
    found = records(folder)
    assert {record.outcome for record in found} == {Outcome.OK}
    for record in found:  # parts sum to the step on each rank
        assert sum(record.time.values()) == pytest.approx(record.profiled_step_seconds, rel=0.05, abs=0.02)
        assert record.time["other"] < 0.1 * record.profiled_step_seconds
    shown = figures(trial_plan, settings, found, wall_seconds=1000.0)
    assert sum(shown["time"].values()) == pytest.approx(shown["profiled_step_seconds"], rel=0.05, abs=0.02)
    return shown


def bytes_by_collective(shown: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(row.axis, row.collective): row.message_bytes for row in shown["traffic"]}


def test_fsdp_traffic_equals_the_expected_bytes(tmp_path: Path) -> None:
    """Each layer is gathered in the forward and the backward pass, the root, which stays gathered, once; each gradient is
    reduce-scattered once, in fp32.
    """
    trace = tmp_path / "trace"
    shown = measured(Layout(dp_shard=2), Knobs(micro_batch=4), tmp_path, replace(SETTINGS, trace=str(trace)))
    ends = 2 * MODEL.vocab_size * MODEL.hidden_size + MODEL.hidden_size
    layers = MODEL.parameters - ends
    bytes_by_call = bytes_by_collective(shown)
    assert bytes_by_call["dp_shard", "reduce_scatter"] == pytest.approx(4 * (layers + ends), rel=0.02)
    assert bytes_by_call["dp_shard", "all_gather"] == pytest.approx(4 * (2 * layers + ends), rel=0.02)
    assert shown["time"]["dp_communication"] > 0
    assert (shown["bubble_ratio_by_stage"], shown["peak_reserved_bytes"]) == ((), ())
    assert {moment.phase for moment in shown["peak_moments"]} <= {"forward", "backward", "optimizer"}
    assert "does not predict that of GPUs" in shown["notes"][0]
    kept = sorted(path.name for path in trace.iterdir())
    assert kept == ["rank-0.memory.json", "rank-0.trace.json", "rank-1.memory.json", "rank-1.trace.json"]
    assert "gloo:all_gather" in (trace / "rank-0.trace.json").read_text(encoding="utf-8")


@pytest.mark.full
def test_sequence_parallel_tp_traffic_equals_the_expected_bytes(tmp_path: Path) -> None:
    """Two regions per layer, each with a gather and a scatter in the forward and the backward pass; a message has half of the
    sequence.
    """
    shown = measured(Layout(tp=2), Knobs(sequence_parallel=True, micro_batch=8), tmp_path)
    bytes_by_call, hidden = bytes_by_collective(shown), 4 * WORK.global_batch * WORK.seq_len * MODEL.hidden_size
    assert bytes_by_call["tp", "reduce_scatter"] == pytest.approx(4 * MODEL.layers * hidden, rel=0.2)
    assert bytes_by_call["tp", "all_gather"] == pytest.approx(4 * MODEL.layers * hidden, rel=0.3)
    assert shown["time"]["tp_communication"] > 0
    assert shown["time"].get("dp_communication", 0.0) == 0


def test_a_pipeline_shows_the_bubble_of_each_stage(tmp_path: Path) -> None:
    """Four micro-batches in each direction cross the single stage border, and each stage waits for the other."""
    knobs = Knobs(micro_batch=2, pp_schedule="1f1b", no_sync=True)
    shown = measured(Layout(pp=2), knobs, tmp_path)
    message = 4 * 2 * WORK.seq_len * MODEL.hidden_size
    assert bytes_by_collective(shown)["pp", "send"] == bytes_by_collective(shown)["pp", "recv"] == 4 * message
    assert len(shown["bubble_ratio_by_stage"]) == 2
    assert all(0 < bubble < 1 for bubble in shown["bubble_ratio_by_stage"])
    assert shown["bubble_ratio"] == pytest.approx(sum(shown["bubble_ratio_by_stage"]) / 2, rel=0.1)
    assert shown["time"]["bubble"] / shown["profiled_step_seconds"] == pytest.approx(shown["bubble_ratio"], rel=0.05)


@pytest.mark.gpu
def test_kernel_times_of_one_gpu_sum_to_its_step(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trial_plan = plan(layout=Layout(), knobs=Knobs(micro_batch=8, recompute="full"), model=MODEL, workload=WORK, kind="cuda")
    code, record, errors = run_alone(trial_plan, tmp_path, replace(SETTINGS, trace=str(trace)))
    assert code == 0, errors
    assert sum(record.time.values()) == pytest.approx(record.profiled_step_seconds, rel=0.05)
    assert all(record.time[part] > 0 for part in ("matmul", "attention", "recompute", "optimizer", "memory_bound"))
    assert record.peak_reserved_bytes >= record.peak_memory_bytes > 0
    assert record.peak_moment.phase in ("forward", "backward", "optimizer")
    assert sorted(path.name for path in trace.iterdir()) == ["rank-0.memory.json", "rank-0.memory.pickle", "rank-0.trace.json"]
