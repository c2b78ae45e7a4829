"""Calibration factors act on links and rates, each on its own part."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from cost.situations import DENSE, WORKLOAD, cluster
from strategist import api
from strategist.contract.cluster import Cluster
from strategist.contract.stack import NATIVE, Stack
from strategist.cost.calibration import NEUTRAL, SLOWEST_LAUNCH_SECONDS, Calibration
from strategist.cost.candidate_arrays import Floats
from strategist.cost.fit import STACK_FACTORS
from strategist.cost.rates import Matmuls, Rates, rates_of
from strategist.cost.shipped_calibrations import ANY_STACK, FittedTo, Shipped, factors, shipped, shipped_for
from strategist.errors import InputError
from strategist.profiles.cluster import resolve_cluster


def rates(on: Cluster, calibration: Calibration = NEUTRAL) -> Rates:
    return rates_of(on, NATIVE, WORKLOAD, DENSE).calibrated(calibration.factors)


def efficiency(on: Cluster, calibration: Calibration) -> Floats:
    """Share of the peak that matmuls reach, for all sizes of the curve."""
    sizes, shares = (np.array(column) for column in zip(*on.device.matmul.points, strict=True))
    matmuls = Matmuls(flops=sizes, peak_flops=1.0, size=sizes, efficiency=shares)
    reached: Floats = sizes / matmuls.seconds(calibration.factors, inf)
    return reached


def test_neutral_factors_do_not_change_rates_and_links() -> None:
    on = cluster()
    assert NEUTRAL.calibrated_cluster(on) == on
    assert rates(on) == rates_of(on, NATIVE, WORKLOAD, DENSE)


def test_unfused_attention_with_unaligned_heads_runs_at_the_fp32_peak() -> None:
    on, unfused = cluster(), replace(NATIVE, attention="unfused")
    peaks = {
        (stack.attention, size): rates_of(on, stack, WORKLOAD, replace(DENSE, head_size=size)).attention_flops
        for stack in (NATIVE, unfused)
        for size in (104, 108)
    }
    assert peaks == {("flash", 104): 4e14, ("flash", 108): 4e14, ("unfused", 104): 4e14, ("unfused", 108): 1e14}


def test_flash_attention_1_has_0_43_of_the_rate_of_flash_attention_2() -> None:
    model = replace(DENSE, head_size=128)
    first, second = (
        rates_of(cluster(), replace(NATIVE, attention_kernels=kernels), WORKLOAD, model).attention_rate
        for kernels in ("first", "portable")
    )
    assert first == pytest.approx(0.43 * second)


@pytest.mark.parametrize(("kernels", "share"), [("portable", 0.88), ("tuned", 0.81)])
def test_flash_attention_is_slower_with_small_heads(kernels: str, share: float) -> None:
    stack = replace(NATIVE, attention_kernels=kernels)
    rates = {
        size: rates_of(cluster(), stack, WORKLOAD, replace(DENSE, head_size=size)).attention_rate for size in (32, 64, 96, 128, 192)
    }
    assert rates[64] == rates[32] == pytest.approx(share * rates[128])
    assert rates[64] < rates[96] < rates[128] == rates[192]


def test_unfused_attention_has_one_rate_for_aligned_heads() -> None:
    unfused = replace(NATIVE, attention="unfused")
    small, large = (rates_of(cluster(), unfused, WORKLOAD, replace(DENSE, head_size=size)).attention_rate for size in (64, 128))
    assert small == large


def test_the_compute_factor_slows_the_device_but_no_link() -> None:
    on, slow = cluster(), Calibration(compute=2.0)
    assert rates(on, slow).attention_rate == rates(on).attention_rate / 2
    assert rates(on, slow).memory_rate == rates(on).memory_rate / 2
    assert efficiency(on, slow) == pytest.approx(efficiency(on, NEUTRAL) / 2)
    assert slow.calibrated_cluster(on) == on


def test_the_small_factor_slows_small_matmuls_more_than_large_ones() -> None:
    lost = efficiency(cluster(), Calibration(small=0.2)) / efficiency(cluster(), NEUTRAL)
    assert lost.tolist() == sorted(lost.tolist())
    assert lost[0] < 1


def test_the_communication_factor_slows_both_links_and_inter_only_one() -> None:
    on = cluster()
    slow = Calibration(communication=2.0, inter=3.0).calibrated_cluster(on)
    assert slow.intra.bytes_per_second == pytest.approx(on.intra.bytes_per_second / 2)
    assert slow.inter.bytes_per_second == pytest.approx(on.inter.bytes_per_second / 6)
    assert slow.inter.latency_seconds == pytest.approx(on.inter.latency_seconds * 2)


def test_a_stack_without_fit_uses_the_factors_of_its_family() -> None:
    found = shipped_for(Stack(name="unknown", family="torch"))
    assert found is not None
    assert found.stack == "any torch"
    known = Shipped(source="", fits=tuple(item for item in shipped().fits if item.stack == ANY_STACK))
    other = shipped_for(Stack(name="unknown", family="torch"), known)
    assert other is not None
    assert other.stack == ANY_STACK
    assert shipped_for(Stack(), Shipped(source="")) is None


def test_shipped_factors_apply_to_gpus_only() -> None:
    gpus, cpus = resolve_cluster("8xH100"), resolve_cluster("4xcpu")
    assert factors(None, gpus).trials > 0
    assert factors(None, cpus).trials == 0
    assert factors(Calibration(compute=2.0), cpus).compute == 2.0


def test_calibrated_rates_are_capped_at_hardware_limits() -> None:
    on = cluster()
    links = {name: replace(getattr(on, name), line_bytes_per_second=3e11) for name in ("intra", "inter")}
    on = replace(on, **links, host_line_bytes_per_second=5e10)
    quick = Calibration(compute=1e-3, communication=1e-3, inter=1e-3, host=1e-3)
    links, reached = quick.calibrated_cluster(on), rates(on, quick)
    assert {links.intra.bytes_per_second, links.inter.bytes_per_second, links.inter.pair_bytes_per_second} == {3e11}
    assert reached.host_bytes_per_second == 5e10
    assert set(efficiency(on, quick).tolist()) == {1.0}
    assert reached.attention_efficiency == reached.memory_efficiency == 1.0
    assert rates(on, Calibration(launch=100.0)).launch_seconds == SLOWEST_LAUNCH_SECONDS


@pytest.mark.parametrize("name", ["tensor", "expert"])
def test_exposed_shares_above_one_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} 1.5: is the share"):
        Calibration(**{name: 1.5})


def test_capping_factors_does_not_change_rates() -> None:
    on = replace(cluster(), inter=replace(cluster().inter, line_bytes_per_second=2.5e10))
    quick = Calibration(compute=0.5, memory_bound=3.0, communication=0.8, inter=0.5, latency=2.0)
    found = quick.within(on)
    assert found.communication * found.inter == pytest.approx(2e10 / 2.5e10)
    assert found.compute == 0.7
    before, after = quick.calibrated_cluster(on), found.calibrated_cluster(on)
    assert after.intra.latency_seconds == pytest.approx(before.intra.latency_seconds)
    assert after.inter.bytes_per_second == pytest.approx(before.inter.bytes_per_second)
    assert rates(on, found).memory_efficiency == pytest.approx(rates(on, quick).memory_efficiency)


@pytest.mark.parametrize("item", shipped().fits, ids=lambda item: item.stack)
@pytest.mark.parametrize("device", ["H100-SXM", "A100-80GB", "B200", "RTX4090"])
def test_shipped_factors_respect_hardware_limits(item: FittedTo, device: str) -> None:
    box, own = api.cluster(device), item.calibration
    seen, reached = own.calibrated_cluster(box), rates(box, own)
    for link, usual in ((seen.intra, box.intra), (seen.inter, box.inter)):
        assert link.bytes_per_second <= (usual.line_bytes_per_second or inf)
    assert efficiency(box, own).max() <= 1
    assert max(reached.attention_efficiency, reached.memory_efficiency) <= 1
    for name, factor in STACK_FACTORS.items():
        assert factor.minimum <= getattr(own, name) <= factor.maximum
