"""Simulated steps of candidates: equal to the closed form where it holds, and effects that it does not model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cost.situations import DENSE, INTRA, WORKLOAD, cluster
from strategist.contract.cluster import Cluster
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.cost.calibration import NEUTRAL
from strategist.cost.pipeline_actions import Pipeline
from strategist.cost.price import price
from strategist.cost.simulated_steps import STAGE_PARTS, Simulated, pipeline_of, simulated, streamed_round, with_simulated
from strategist.expr.columns import Columns, row_of, table

SMALL_VOCABULARY = replace(DENSE, vocab_size=8, tied_embeddings=True)
"""Embedding and head are negligible, so that all stages are equal."""

QUICK = replace(INTRA, pair_bytes_per_second=1e18, latency_seconds=1e-15)
EQUAL = (
    {"pp_schedule": "gpipe"},
    {"pp_schedule": "1f1b"},
    {"pp_schedule": "looped_bfs", "pp_virtual_stages": 2},
    {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 4},
    {"pp_schedule": "interleaved_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False},
)


def rows(model: ModelShape, *knobs: dict[str, Any], layout: Layout | None = None) -> Columns:
    """A table of legal candidates, with pp 4 and dp_shard 2 unless a layout is given."""
    settings = {"no_sync": True}
    found = [Candidate(layout=layout or Layout(pp=4, dp_shard=2), knobs=Knobs(**settings | own)) for own in knobs]
    assert all(item.violations(model, WORKLOAD, item.layout.world_size) == () for item in found)
    return table([row_of(item, item.accumulation(WORKLOAD)) for item in found])


def closed_and_simulated(model: ModelShape, on: Cluster, *knobs: dict[str, Any], **how: Any) -> list[tuple[Estimate, Estimate]]:
    """The closed-form estimate and the simulated estimate of each candidate."""
    columns = rows(model, *knobs)
    priced = price(model, on, WORKLOAD, columns)
    found = simulated(model, on, WORKLOAD, columns, **how)
    assert sorted(row for some in found for row in some.rows) == list(range(columns.rows))
    simulated_step = with_simulated(priced, found, range(columns.rows))
    return [(priced.estimate(row), simulated_step.estimate(row)) for row in range(columns.rows)]


def test_with_equal_stages_and_fast_links_simulation_equals_the_closed_form() -> None:
    for closed, found in closed_and_simulated(SMALL_VOCABULARY, cluster(intra=QUICK), *EQUAL):
        assert found.step_seconds == pytest.approx(closed.step_seconds, rel=2e-3)
        assert found.time.bubble == pytest.approx(closed.time.bubble, rel=0.02)
        assert found.time.matmul == pytest.approx(closed.time.matmul, rel=1e-3)
        assert found.memory == closed.memory


def test_parts_of_a_simulated_step_sum_to_the_step() -> None:
    pairs = closed_and_simulated(
        DENSE, cluster(), *EQUAL, {"pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False}
    )
    for closed, found in pairs:
        assert found.time.total == pytest.approx(found.step_seconds)
        assert found.time.bubble >= 0
        assert found.time.pp_communication > 0
        assert found.tokens_per_second == pytest.approx(closed.tokens_per_second * closed.step_seconds / found.step_seconds)


def test_a_weighted_split_is_faster_with_a_large_head() -> None:
    """With even stages the last one is the slowest."""
    large = replace(DENSE, vocab_size=131072)
    even = closed_and_simulated(large, cluster(), {"pp_schedule": "1f1b"})[0][1]
    weighted = closed_and_simulated(large, cluster(), {"pp_schedule": "1f1b"}, weighted=True)[0][1]
    assert weighted.step_seconds < 0.9 * even.step_seconds


@pytest.mark.parametrize(("train", "passes"), [("full", (1 / 3, 1 / 3, 1 / 3)), ("lora", (1 / 2, 1 / 2, 0))])
def test_the_heads_matmul_runs_once_forward_and_once_per_gradient(train: str, passes: tuple[float, ...]) -> None:
    [found] = simulated(DENSE, cluster(), replace(WORKLOAD, train=train), rows(DENSE, {"pp_schedule": "1f1b"}))
    matmul = found.passes.head[:, STAGE_PARTS.index("matmul"), 0]
    assert matmul / matmul.sum() == pytest.approx(passes)


def test_exposed_transfers_of_1f1b_are_close_to_the_closed_form() -> None:
    closed, found = closed_and_simulated(
        SMALL_VOCABULARY, cluster(intra=replace(INTRA, pair_bytes_per_second=2e10)), {"pp_schedule": "1f1b"}
    )[0]
    assert found.time.pp_communication == pytest.approx(closed.time.pp_communication, rel=0.3)


def timeline_of(found: tuple[Simulated, ...], row: int) -> tuple[Simulated, int]:
    return next((some, some.rows.index(row)) for some in found if row in some.rows)


def test_candidates_with_equal_pipelines_are_simulated_together_without_effect() -> None:
    columns = rows(DENSE, {"recompute": "full"}, {"micro_batch": 2}, {"sequence_parallel": False})
    found = simulated(DENSE, cluster(), WORKLOAD, columns)
    assert [some.rows for some in found] == [(0, 2), (1,)]
    assert pipeline_of(columns, 1) == Pipeline("1f1b", 4, 1, 8)
    for row in range(3):
        some, place = timeline_of(found, row)
        alone = simulated(DENSE, cluster(), WORKLOAD, columns.take(np.array([row])))[0]
        assert alone.timeline.step_seconds[0] == some.timeline.step_seconds[place]


def test_candidates_without_a_pipeline_are_not_simulated() -> None:
    columns = rows(DENSE, {}, layout=Layout(dp_shard=8))
    assert simulated(DENSE, cluster(), WORKLOAD, columns) == ()


def test_pipeline_layers_are_reported_only_if_uneven() -> None:
    large = replace(DENSE, vocab_size=131072)
    even = closed_and_simulated(large, cluster(), {"pp_schedule": "1f1b"})[0][1]
    weighted = closed_and_simulated(large, cluster(), {"pp_schedule": "1f1b"}, weighted=True)[0][1]
    assert even.pipeline_layers == ()
    assert sum(weighted.pipeline_layers) == large.layers
    assert weighted.pipeline_layers[-1] < weighted.pipeline_layers[0]


@pytest.mark.parametrize("global_batch", [2, 4, 8, 10])
def test_a_simulated_streamed_round_equals_its_price(global_batch: int) -> None:
    """Also with fewer micro-batches than ranks, which then wait for each other before each stage."""
    workload = replace(WORKLOAD, global_batch=global_batch)
    knobs = Knobs(offload="streamed", recompute="full", pp_schedule="gpipe", no_sync=True)
    columns = table([row_of(Candidate(layout=Layout(pp=8), knobs=knobs), global_batch)])
    priced = price(SMALL_VOCABULARY, cluster(), workload, columns).estimate(0)
    found = streamed_round(SMALL_VOCABULARY, cluster(), workload, columns, NEUTRAL)
    assert float(found.timeline.step_seconds[0]) == pytest.approx(priced.step_seconds, rel=0.1)
