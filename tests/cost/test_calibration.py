"""Calibration: factors act on the cluster, each on its own part."""

from dataclasses import replace

import pytest

from cost.situations import cluster
from strategist.contract.stack import Stack
from strategist.cost.calibration import MANY_NODES, NEUTRAL, SLOWEST_LAUNCH_SECONDS, Calibration
from strategist.cost.fit import FACTORS
from strategist.cost.shipped import ANY_STACK, FittedTo, shipped, shipped_for
from strategist.errors import InputError
from strategist.profiles.cluster import typical_node


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


def test_no_factor_makes_hardware_faster_than_it_can_be() -> None:
    on = cluster()
    links = {name: replace(getattr(on, name), line_bytes_per_second=3e11) for name in ("intra", "inter")}
    on = replace(on, **links, host_line_bytes_per_second=5e10)
    quick = Calibration(compute=1e-3, communication=1e-3, inter=1e-3, host=1e-3).on(on)
    assert {quick.intra.bytes_per_second, quick.inter.bytes_per_second, quick.inter.pair_bytes_per_second} == {3e11}
    assert quick.host_bytes_per_second == 5e10
    assert {share for _, share in quick.device.matmul.points} == {1.0}
    assert quick.device.attention_efficiency == quick.device.memory_efficiency == 1.0
    assert Calibration(launch=100.0).on(on).device.launch_seconds == SLOWEST_LAUNCH_SECONDS


@pytest.mark.parametrize("name", ["tensor", "expert"])
def test_what_shows_of_collectives_is_a_share(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} 1.5: is the share"):
        Calibration(**{name: 1.5})


def test_factors_brought_within_limits_price_as_before() -> None:
    on = replace(cluster(), inter=replace(cluster().inter, line_bytes_per_second=2.5e10))
    quick = Calibration(compute=0.5, memory_bound=3.0, communication=0.8, inter=0.5, latency=2.0)
    found = quick.within(on)
    assert found.communication * found.inter == pytest.approx(2e10 / 2.5e10)
    assert found.compute == 0.7
    before, after = quick.on(on), found.on(on)
    assert after.intra.latency_seconds == pytest.approx(before.intra.latency_seconds)
    assert after.inter.bytes_per_second == pytest.approx(before.inter.bytes_per_second)
    assert after.device.memory_efficiency == pytest.approx(before.device.memory_efficiency)


@pytest.mark.parametrize("item", shipped().fits, ids=lambda item: f"{item.device} {item.stack}")
def test_shipped_factors_lie_within_the_hardware(item: FittedTo) -> None:
    box, own = typical_node(item.device), item.calibration
    within = own.within(box)
    assert [getattr(within, name) for name in FACTORS] == pytest.approx([getattr(own, name) for name in FACTORS])
