"""Heterogeneous nodes: the slowest device sets the pace, and pipelines assign it fewer layers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from strategist.contract.cluster import Cluster, NodeGroup
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.settings import AXIS_ORDERS
from strategist.cost.heterogeneous_nodes import HeterogeneousPrices, price_heterogeneous, split_layers
from strategist.cost.memory import COMMUNICATOR_BYTES
from strategist.cost.pipeline_actions import Pipeline
from strategist.cost.pipeline_split import split
from strategist.cost.price import Priced, price
from strategist.expr.columns import Columns, row_of, table

from .situations import DENSE, DEVICE, EXPERTS, INTER, INTRA, WORKLOAD, cluster

SLOW = replace(DEVICE, name="old", peak_flops={name: peak / 3 for name, peak in DEVICE.peak_flops.items()})
ON = cluster(nodes=2, gpus_per_node=4)


def two_node_types(slow: float = 1 / 3, usable: int = DEVICE.usable_memory_bytes, nodes: tuple[int, int] = (1, 1)) -> Cluster:
    """Nodes of normal devices, then nodes of devices with ``slow`` times the peak and ``usable`` bytes of memory."""
    peaks = {name: peak * slow for name, peak in DEVICE.peak_flops.items()}
    old = replace(DEVICE, name="old", peak_flops=peaks, usable_memory_bytes=usable)
    groups = tuple(NodeGroup(nodes=n, device=d, intra=INTRA, inter=INTER) for n, d in zip(nodes, (DEVICE, old), strict=True))
    return replace(ON, device=old, groups=groups, nodes=sum(nodes))


def columns(*layouts: Layout, accumulation: int = 16, **knobs: object) -> Columns:
    made = [Candidate(layout=layout, knobs=Knobs(**knobs)) for layout in layouts]
    return table([row_of(item, accumulation) for item in made])


def priced(on: Cluster, *layouts: Layout, **knobs: object) -> Priced:
    return price_heterogeneous(DENSE, on, WORKLOAD, columns(*layouts, **knobs))


PIPELINE = Layout(pp=2, dp_shard=4)


def test_equal_node_groups_have_the_homogeneous_price() -> None:
    assert not isinstance(priced(ON, PIPELINE), HeterogeneousPrices)
    same = priced(two_node_types(slow=1.0), PIPELINE, Layout(dp_shard=8))
    plain = price(DENSE, ON, WORKLOAD, columns(PIPELINE, Layout(dp_shard=8)))
    np.testing.assert_allclose(same.step_seconds, plain.step_seconds)
    assert same.estimate(0) == plain.estimate(0)


def test_data_parallel_steps_take_the_time_of_the_slowest_devices() -> None:
    found, layout = priced(two_node_types(), Layout(dp_shard=8)), columns(Layout(dp_shard=8))
    slowest = price(DENSE, replace(two_node_types(), groups=()), WORKLOAD, layout)
    assert found.step_seconds == slowest.step_seconds
    assert found.estimate(0).pipeline_layers == ()
    assert found.estimate(0).mfu == pytest.approx(slowest.estimate(0).mfu / 2)  # of the peak of all, half of it three times as fast


def test_a_pipeline_assigns_fewer_layers_to_slow_devices_and_is_faster() -> None:
    found = priced(two_node_types(), PIPELINE).estimate(0)
    even = price(DENSE, replace(two_node_types(), groups=()), WORKLOAD, columns(PIPELINE)).estimate(0)
    fast, slow = found.pipeline_layers
    assert fast + slow == DENSE.layers
    assert fast > slow >= 1
    assert found.step_seconds < 0.85 * even.step_seconds
    assert found.step_seconds > price(DENSE, ON, WORKLOAD, columns(PIPELINE)).estimate(0).step_seconds
    assert found.time.total == pytest.approx(found.step_seconds)


def test_each_node_group_is_checked_against_its_own_memory() -> None:
    layout = columns(PIPELINE)
    even = price(DENSE, ON, WORKLOAD, layout).estimate(0)
    less = int(0.85 * even.peak_memory_bytes) + COMMUNICATOR_BYTES  # the pipeline's communicator besides that of the replicas
    found = priced(two_node_types(usable=less), PIPELINE)
    assert not price(DENSE, replace(two_node_types(usable=less), groups=()), WORKLOAD, layout).fits_device[0]
    assert found.fits_device[0]
    estimate = found.estimate(0)
    assert estimate.fits
    assert estimate.capacity_bytes + COMMUNICATOR_BYTES in (less, DEVICE.usable_memory_bytes)
    tiny = priced(two_node_types(usable=less // 20), PIPELINE)
    assert not tiny.fits_device[0]
    assert tiny.estimate(0).pipeline_layers == ()


@pytest.mark.parametrize(
    ("layout", "knobs"),
    [
        (Layout(pp=2, dp_replicate=4, axis_order=tuple(AXIS_ORDERS[1].split("."))), {}),  # each pipeline within a node, or across
        (Layout(pp=2, dp_shard=4), {"pp_schedule": "interleaved_1f1b", "pp_virtual_stages": 2}),
        (Layout(dp_shard=2, tp=4), {}),
    ],
    ids=["replicas outermost", "several stages a rank", "no pipeline"],
)
def test_layouts_that_cannot_be_split_by_speed_keep_even_stages(layout: Layout, knobs: dict[str, object]) -> None:
    assert priced(two_node_types(), layout, **knobs).estimate(0).pipeline_layers == ()


def test_stages_that_span_two_node_types_stay_even() -> None:
    on = two_node_types(nodes=(3, 1))
    priced_both, apart = priced(on, Layout(pp=2, dp_shard=8), Layout(pp=4, dp_shard=4)), 1
    assert priced_both.estimate(0).pipeline_layers == ()
    layers = priced_both.estimate(apart).pipeline_layers
    assert len(layers) == 4
    assert sum(layers) == DENSE.layers
    assert layers[-1] < min(layers[:3])


def test_moe_layers_are_split_by_speed() -> None:
    found = price_heterogeneous(EXPERTS, two_node_types(), WORKLOAD, columns(PIPELINE)).estimate(0)
    assert sum(found.pipeline_layers) == EXPERTS.layers
    assert found.pipeline_layers[0] > found.pipeline_layers[1]


def test_the_price_of_a_candidate_does_not_depend_on_the_others() -> None:
    layouts = [PIPELINE, Layout(dp_shard=8), Layout(pp=4, dp_shard=2), Layout(pp=8), Layout(pp=2, tp=4)]
    many = priced(two_node_types(), *layouts)
    assert [many.estimate(row) for row in range(len(layouts))] == [
        priced(two_node_types(), layout).estimate(0) for layout in layouts
    ]


@pytest.mark.parametrize(("layers", "paces"), list(product((7, 16, 61), ((1.0, 1.0), (1.0, 3.0), (1.0, 2.4), (5.0, 1.0)))))
def test_the_split_by_speed_is_optimal(layers: int, paces: tuple[float, float]) -> None:
    for ranks in ((1, 1), (3, 1), (2, 2), (1, 3)):
        each = split_layers(layers, np.array(paces)[:, None], np.array(ranks)[:, None])[:, 0]
        assert (each * ranks).sum() >= layers
        speeds = [1 / pace for pace, count in zip(paces, ranks, strict=True) for _ in range(count)]
        best = split(Pipeline("1f1b", sum(ranks), 1, 8), layers, 1.0, [0.0] * sum(ranks), speeds)
        assert max(each * paces) == pytest.approx(best.slowest_seconds)
