"""Calibration: factors act on the cluster, each on its own part."""

from dataclasses import replace

import pytest

from cost.situations import cluster
from strategist.contract.stack import Stack
from strategist.cost.calibration import MANY_NODES, NEUTRAL, Calibration
from strategist.cost.shipped import ANY_STACK, shipped, shipped_for


def test_neutral_factors_leave_the_cluster_as_it_is() -> None:
    on = cluster()
    assert NEUTRAL.on(on) == on


def test_compute_slows_the_device_and_no_link() -> None:
    on = cluster()
    slow = Calibration(compute=2.0).on(on)
    assert slow.device.attention_efficiency == on.device.attention_efficiency / 2
    assert slow.device.memory_efficiency == on.device.memory_efficiency / 2
    assert [share for _, share in slow.device.matmul.points] == [share / 2 for _, share in on.device.matmul.points]
    assert (slow.intra, slow.inter) == (on.intra, on.inter)


def test_small_slows_small_matmuls_more_than_large_ones() -> None:
    on = cluster()
    slow = Calibration(small=0.2).on(on)
    lost = [share / before for (_, share), (_, before) in zip(slow.device.matmul.points, on.device.matmul.points, strict=True)]
    assert lost == sorted(lost)
    assert lost[0] < 1 or on.device.matmul.points[0][0] >= 1e12


def test_communication_slows_both_links_and_inter_one() -> None:
    on = cluster()
    slow = Calibration(communication=2.0, inter=3.0).on(on)
    assert slow.intra.bytes_per_second == pytest.approx(on.intra.bytes_per_second / 2)
    assert slow.inter.bytes_per_second == pytest.approx(on.inter.bytes_per_second / 6)
    assert slow.inter.latency_seconds == pytest.approx(on.inter.latency_seconds * 2)


def test_a_network_gets_crowded_with_many_nodes_and_never_within_one() -> None:
    few, many, one = (replace(cluster(), nodes=nodes) for nodes in (2, MANY_NODES, 1))
    crowded = Calibration(congestion=1.0)
    assert crowded.on(one).inter.bytes_per_second == one.inter.bytes_per_second
    assert crowded.on(few).inter.bytes_per_second == pytest.approx(few.inter.bytes_per_second, rel=1e-3)
    assert crowded.on(many).inter.bytes_per_second == pytest.approx(many.inter.bytes_per_second / 2)


def test_a_stack_that_nobody_measured_takes_the_factors_of_its_kin() -> None:
    known = {(item.stack, item.device) for item in shipped().fits}
    device = next(device for stack, device in known if stack == "any torch")
    found = shipped_for(Stack(name="nobody's", kin="torch"), device)
    assert found is not None
    assert found.stack == "any torch"
    alone = next(device for stack, device in known if stack == ANY_STACK and ("any own", device) not in known)
    other = shipped_for(Stack(name="nobody's", kin="own"), alone)
    assert other is not None
    assert other.stack == ANY_STACK
    assert shipped_for(Stack(), "no such device") is None
