"""Bytes of a step by mesh axis and collective, counted by hand."""

import pytest

from cost.situations import DENSE, WORKLOAD, cluster
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.cost.traffic import step_traffic
from strategist.expr.columns import row_of, table

ACTIVATION = WORKLOAD.seq_len * DENSE.hidden_size * 2


def moved(layout: Layout, **knobs: object) -> dict[tuple[str, str], float]:
    candidate = Candidate(layout=layout, knobs=Knobs(**knobs))
    columns = table([row_of(candidate, candidate.accumulation(WORKLOAD))])
    return {(row.axis, row.collective): row.message_bytes for row in step_traffic(DENSE, cluster(4, 8), WORKLOAD, columns)}


def test_with_no_sync_shards_are_reduced_once_per_step_and_gathered_twice() -> None:
    found = moved(Layout(dp_shard=8, dp_replicate=4), no_sync=True)
    assert found["dp_shard", "reduce_scatter"] == pytest.approx(DENSE.parameters * 4 * 7 / 8, rel=0.01)
    assert found["dp_shard", "all_gather"] == pytest.approx(
        DENSE.parameters * 2 * 2 * 7 / 8, rel=0.12
    )  # embedding and head stay gathered
    assert found["dp_replicate", "all_reduce"] == pytest.approx(DENSE.parameters / 8 * 4 * 2 * 3 / 4, rel=0.01)


def test_tp_moves_activations_of_each_layer() -> None:
    found = moved(Layout(tp=8, dp_replicate=4), sequence_parallel=True, loss_parallel=True)
    layers = WORKLOAD.global_batch / 4 * DENSE.layers * 8 * ACTIVATION * 7 / 8
    assert found["tp", "all_gather, reduce_scatter"] == pytest.approx(layers, rel=0.05)  # and the head's


def test_a_pipeline_stage_sends_activations_and_gradients_of_each_micro_batch() -> None:
    found = moved(Layout(pp=4, dp_shard=8))
    assert found["pp", "send"] == pytest.approx(2 * WORKLOAD.global_batch / 8 * ACTIVATION)


def test_a_single_device_has_no_traffic() -> None:
    assert moved(Layout()) == {}


def test_pipeline_stages_gather_layers_once_more_than_micro_batches_and_the_embedding_once() -> None:
    for further in ({"pp_schedule": "1f1b"}, {"pp_schedule": "looped_bfs", "pp_virtual_stages": 2}):
        found = moved(Layout(pp=4, dp_shard=8), no_sync=True, **further)
        layers = (DENSE.parameters - DENSE.embedding_parameters - DENSE.head_parameters) / 4
        passes = WORKLOAD.global_batch / 8 + 1
        expected = (passes * layers + DENSE.embedding_parameters) * 2 * 7 / 8
        assert found["dp_shard", "all_gather"] == pytest.approx(expected, rel=0.01)
