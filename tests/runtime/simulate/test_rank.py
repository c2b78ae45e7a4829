"""A simulated rank has the memory and the traffic of the same rank in a real run."""

from dataclasses import replace

import pytest

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.simulation import SimulatedRank

from ..launch import forked, records, trial_arguments
from ..plans import TINY, WORKLOAD, plan

MODEL = replace(TINY, layers=3, hidden_size=128, head_size=32, ffn_size=352, vocab_size=512)

pytestmark = [pytest.mark.torch, pytest.mark.timeout(150)]


@pytest.mark.parametrize(
    ("layout", "knobs"),
    [
        (Layout(dp_shard=2), Knobs(micro_batch=2)),
        (Layout(dp_shard=2), Knobs(micro_batch=2, chunked_loss=True)),
        pytest.param(
            Layout(dp_shard=2), Knobs(micro_batch=2, reshard_after_forward=False, recompute="full"), marks=pytest.mark.full
        ),
    ],
)
def test_a_simulated_fsdp_rank_equals_the_real_one(layout, knobs, tmp_path):
    trial_plan = plan(layout=layout, knobs=knobs, model=MODEL, workload=replace(WORKLOAD, seq_len=128, global_batch=4))
    done = forked(layout.world_size, trial_arguments(trial_plan, tmp_path))
    assert done.returncode == 0, done.stderr
    real, found = records(tmp_path)[1], simulated(tmp_path, 1)
    assert found.peak_memory_bytes == pytest.approx(real.peak_memory_bytes, rel=2e-3)
    assert found.moment == real.peak_moment
    assert traffic_of(found) == traffic_of(real)
    assert sum(found.memory.values()) == sum(found.modules.values()) == found.peak_memory_bytes


def test_one_rank_of_1024_is_simulated(tmp_path):
    layout = Layout(dp_shard=128, tp=2, pp=4)
    trial_plan = plan(
        layout=layout,
        knobs=Knobs(pp_schedule="1f1b", no_sync=True),
        model=replace(MODEL, layers=4),
        workload=replace(WORKLOAD, global_batch=512),
    )
    codec.save(trial_plan, tmp_path / "plan.json")
    found = simulated(tmp_path, 1023)
    assert found.stages == (3,)
    assert {row.axis for row in found.traffic} == {"pp", "dp_shard", "tp", "world"}
    assert found.memory["parameters"] > 0


def simulated(folder, rank, *options):
    out = folder / "simulated.json"
    done = forked(1, ["strategist_runtime.simulate", str(folder / "plan.json"), "--rank", str(rank), "--out", str(out), *options])
    assert done.returncode == 0, done.stderr
    return codec.load(SimulatedRank, out)


def traffic_of(record):
    return {(row.axis, row.collective): (row.calls, row.message_bytes) for row in record.traffic}
