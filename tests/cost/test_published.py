"""Orders of magnitude against published runs: 8 x RTX 4090 on PCIe 4.0, sequences of 2048 tokens, full recomputation.

The source of every figure is the artifact of arXiv 2604.27085 (github.com/ITcarrot/RoundPipe-artifact, exp/raw-data.csv with the
settings in its run.sh files).
"""

from typing import Any

import pytest

from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.workload import Workload
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model


def predicted(model: str, global_batch: int, layout: Layout, **knobs: Any) -> Estimate:
    shape, on = resolve_model(model).shape, resolve_cluster("8xRTX4090")
    workload = Workload(seq_len=2048, global_batch=global_batch, precision="fp16")
    candidate = Candidate(layout=layout, knobs=Knobs(recompute="full", **knobs))
    assert candidate.violations(shape, workload, 8) == ()
    return price(shape, on, workload, table([row_of(candidate, candidate.accumulation(workload))])).estimate(0)


STEPS = {
    "FSDP": (17.03, "llama3.1-8b", 16, Layout(dp_shard=8), {"micro_batch": 2, "reduce_dtype": "bf16"}),
    "tensor parallel": (569.4, "llama3.1-8b", 256, Layout(tp=8), {"micro_batch": 8}),
    "pipeline": (31.95, "llama3.1-8b", 256, Layout(pp=8), {"micro_batch": 2}),
    "ZeRO-3 with offload": (284.4, "llama3.1-8b", 256, Layout(dp_shard=8), {"micro_batch": 2, "offload": "all"}),
}


@pytest.mark.parametrize(("seconds", "model", "batch", "layout", "knobs"), STEPS.values(), ids=list(STEPS))
def test_step_seconds_are_within_a_factor_of_two(
    seconds: float, model: str, batch: int, layout: Layout, knobs: dict[str, Any]
) -> None:
    found = predicted(model, batch, layout, **knobs)
    assert seconds / 2 < found.step_seconds < seconds * 2
    if knobs.get("offload") is None and layout.dp_shard == 8:
        assert found.fits


def test_throughput_of_offloaded_32b_is_within_a_factor_of_two() -> None:
    """218 tokens/s for the box with ZeRO-3 and offload to the hosts; 5,516 with whole stages streamed."""
    sharded = predicted("qwen3-32b", 8, Layout(dp_shard=8), offload="all")
    assert 109 < sharded.tokens_per_second < 436
    streamed = predicted("qwen3-32b", 256, Layout(pp=8), offload="streamed", pp_schedule="gpipe")
    assert 2758 < streamed.tokens_per_second < 11032
