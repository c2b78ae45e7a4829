"""A shadow run (a real rank without its peers) has the memory and traffic of the rank in a full run, and measures its
compute time.
"""

from dataclasses import replace

import pytest

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, RankRecord, TrialSettings
from strategist.contract.model import ModelShape, MoEShape
from strategist.contract.options import Options
from strategist.units import GIB

from ..launch import SHORT, forked, records, trial_arguments
from ..plans import TINY, WORKLOAD, plan

MODEL = replace(TINY, layers=4, hidden_size=128, head_size=32, ffn_size=352, vocab_size=512)
EXPERTS = replace(MODEL, moe=MoEShape(experts=8, experts_per_token=2, expert_ffn_size=24))
LLAMA_8B = ModelShape(
    name="llama3-8b", layers=32, hidden_size=4096, heads=32, kv_heads=8, head_size=128, ffn_size=14336, vocab_size=128256
)
STAGES = Knobs(pp_schedule="1f1b", no_sync=True, reshard_after_forward=False)
LOOPED = replace(STAGES, pp_schedule="interleaved_1f1b", pp_virtual_stages=2)

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]


@pytest.mark.parametrize(
    ("layout", "knobs"),
    [
        pytest.param(Layout(dp_shard=2), Knobs(micro_batch=2), marks=pytest.mark.full, id="sharded"),
        pytest.param(Layout(dp_replicate=2), Knobs(), marks=pytest.mark.full, id="replicated"),
        pytest.param(Layout(pp=2), LOOPED, id="pipeline"),
    ],
)
def test_a_shadow_rank_has_the_memory_and_traffic_of_the_real_rank(layout, knobs, tmp_path):
    trial_plan = plan(layout=layout, knobs=knobs, model=MODEL, workload=replace(WORKLOAD, seq_len=128, global_batch=4))
    done = forked(layout.world_size, trial_arguments(trial_plan, tmp_path))
    assert done.returncode == 0, done.stderr
    real = records(tmp_path)[1]
    found = shadow(trial_plan, 1, tmp_path / "shadow")
    assert found.peak_memory_bytes == pytest.approx(real.peak_memory_bytes, rel=0.02)
    assert found.peak_moment == real.peak_moment
    assert traffic_of(found) == traffic_of(real)


def test_stand_ins_for_peers_count_as_communication(tmp_path):
    workload = replace(WORKLOAD, seq_len=128, global_batch=64)
    found = shadow(plan(layout=Layout(dp_shard=64), model=MODEL, workload=workload), 5, tmp_path)
    assert len(found.step_seconds) == SHORT.steps
    assert found.time["dp_communication"] > 0
    assert found.communication_seconds == pytest.approx(found.time["dp_communication"], rel=0.05)
    assert found.time["optimizer"] > 0
    assert 0 < found.compute_seconds < found.profiled_step_seconds


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        (
            Layout(pp=4, dp_shard=16, tp=2),
            {"workload": replace(WORKLOAD, seq_len=64, global_batch=64, precision="fp16"), "model": MODEL, "knobs": STAGES},
        ),
        (
            Layout(dp_shard=64, ep=8),
            {"workload": replace(WORKLOAD, global_batch=64), "model": EXPERTS, "options": Options(expert_balance="auxiliary_loss")},
        ),
    ],
    ids=["pipeline of tensor-parallel stages in fp16", "experts"],
)
def test_shadow_steps_run_with_any_values(layout, options, tmp_path):
    found = shadow(plan(layout=layout, **options), layout.world_size - 1, tmp_path)
    assert found.losses == (0.0,) * (SHORT.warmup_steps + SHORT.steps)  # no step was skipped
    assert found.time["optimizer"] > 0
    assert {row.axis for row in found.traffic if row.calls} >= ({"pp", "tp"} if layout.pp > 1 else {"ep", "dp_shard"})


def test_a_too_large_shadow_rank_runs_out_of_memory(tmp_path):
    """The limit is the device's usable memory, not its total memory. The gathered embedding (64 MiB) alone is beyond it: CPython
    does not survive every failed allocation of a few bytes (:func:`strategist_runtime.rank_process.limit_memory`).
    """
    large = replace(MODEL, vocab_size=2**17)
    trial_plan = plan(layout=Layout(dp_shard=64), model=large, workload=replace(WORKLOAD, global_batch=64))
    device = replace(trial_plan.cluster.device, usable_memory_bytes=2**25)
    trial_plan = replace(trial_plan, cluster=replace(trial_plan.cluster, device=device))
    assert run(trial_plan, 0, tmp_path, SHORT).returncode == 77
    assert codec.load(RankRecord, tmp_path / "rank-0.json").outcome is Outcome.OOM


def test_a_rank_outside_the_world_size_is_refused(tmp_path):
    trial_plan = plan(layout=Layout(dp_shard=64), workload=replace(WORKLOAD, global_batch=64))
    assert run(trial_plan, 64, tmp_path, SHORT).returncode == 79
    assert "one of the plan's 64" in codec.load(RankRecord, tmp_path / "rank-0.json").message


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("ranks", "reserved"), [(8, 82.4), (128, 67.0)])
def test_a_shadow_rank_reserves_the_published_memory_of_8b_on_h100(ranks, reserved, tmp_path):
    """Peak reserved memory in GiB published by TorchTitan in December 2024 (llama3_h100_202412_torchtitan.md): 96 GB, two sequences
    of 8192 tokens per GPU, every second matmul saved, without compiling. On an H200 rank 0 of 8 reserved 82.06 GiB
    (profiles/measurements/rows/h200.jsonl).
    """
    knobs = Knobs(micro_batch=2, recompute="selective", saved_operations="every_second_matmul+attention+collectives")
    workload = replace(WORKLOAD, seq_len=8192, global_batch=2 * ranks, precision="bf16")
    trial_plan = plan(
        layout=Layout(dp_shard=ranks), knobs=knobs, model=LLAMA_8B, workload=workload, kind="cuda", memory_bytes=96 * GIB
    )
    found = shadow(trial_plan, 0, tmp_path)
    assert found.peak_reserved_bytes == pytest.approx(reserved * GIB, rel=0.05)
    assert found.compute_seconds < found.profiled_step_seconds


def shadow(trial_plan, rank, folder, settings=SHORT):
    folder.mkdir(exist_ok=True)
    done = run(trial_plan, rank, folder, settings)
    assert done.returncode == 0, done.stderr
    return codec.load(RankRecord, folder / "rank-0.json")


def run(trial_plan, rank, folder, settings: TrialSettings):
    return forked(1, [*trial_arguments(trial_plan, folder, settings), "--shadow", str(rank)])


def traffic_of(record):
    return {(row.axis, row.collective): (row.calls, row.message_bytes) for row in record.traffic if row.calls}
