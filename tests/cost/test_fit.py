"""Fit: known factors are recovered from measurements, and few measurements change factors little."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from cost.situations import DENSE, INTRA, WORKLOAD, cluster
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import MODELLED_PARTS, Kind, Measurement, Outcome
from strategist.contract.options import Options
from strategist.contract.plan import Digests, Plan
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import FACTORS, fit, fitted
from strategist.cost.observation import Observation
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.history import Record

ON = cluster(intra=replace(INTRA, bytes_per_second=1e11), allocator_slack=0.05, launch_seconds=1e-7)
LAYOUTS = (Layout(dp_shard=8), Layout(dp_shard=4, tp=2), Layout(dp_shard=2, tp=4), Layout(dp_replicate=8), Layout(tp=8))
SETTINGS = tuple(
    Candidate(layout=layout, knobs=Knobs(micro_batch=size, recompute=recompute))
    for layout in LAYOUTS
    for size in (1, 4)
    for recompute in ("none", "full")
)


def plan(candidate: Candidate, calibration: Calibration = NEUTRAL) -> Plan:
    candidate = replace(candidate, options=Options(optimizer_kernel="fused"))
    columns = table([row_of(candidate, candidate.accumulation(WORKLOAD))])
    estimate = price(DENSE, ON, WORKLOAD, columns, calibration).estimate(0)
    digests = Digests(deck="", profiles="", calibration="")
    return Plan(
        model=DENSE, cluster=ON, workload=WORKLOAD, candidate=candidate, estimate=estimate, reasons=(), digests=digests
    ).identified()  # fmt: skip


def measured(estimate: Estimate, **changes: Any) -> Measurement:
    """The measurement of a trial that takes exactly the estimate; peak memory is allocated memory."""
    return replace(
        Measurement(
            plan_id="", kind=Kind.REAL, outcome=Outcome.OK, step_seconds=estimate.step_seconds, steps_measured=10,
            exposed_comm_ratio=estimate.exposed_comm_ratio, peak_memory_bytes=(int(estimate.memory.allocated),) * 8,
        ),
        **changes,
    )  # fmt: skip


def records(truth: Calibration, settings: tuple[Candidate, ...] = SETTINGS) -> list[Record]:
    return [Record(plan=plan(item), measurement=measured(plan(item, truth).estimate)) for item in settings]


@pytest.mark.parametrize(
    "factors",
    [{"compute": 1.4}, {"communication": 1.5}, {"compute": 1.3, "communication": 1.6}, {"compute": 0.8}],
    ids=["compute", "communication", "both", "faster"],
)
def test_fitted_factors_reproduce_the_measured_steps(factors: dict[str, float]) -> None:
    truth = Calibration(**factors)
    found = fit(records(truth))
    assert found.trials == len(SETTINGS)
    for item in SETTINGS:
        assert plan(item, found).estimate.step_seconds == pytest.approx(plan(item, truth).estimate.step_seconds, rel=0.1)


def test_fit_distinguishes_a_slow_device_from_a_slow_link() -> None:
    slow_device, slow_link = fit(records(Calibration(compute=1.4))), fit(records(Calibration(communication=1.5)))
    assert slow_device.compute == pytest.approx(1.4, rel=0.1)
    assert slow_device.communication == pytest.approx(1.0, abs=0.2)
    assert slow_link.communication == pytest.approx(1.5, rel=0.2)
    assert slow_link.compute == pytest.approx(1.0, abs=0.1)


def test_factors_at_their_lower_limit_do_not_distort_the_others() -> None:
    """In pipelines over many nodes the stall factor weighs most; if everything is faster than predicted, there is no stall."""
    on = cluster(nodes=512)
    large = replace(WORKLOAD, global_batch=4096)
    candidates = [
        Candidate(layout=Layout(pp=4, dp_shard=1024 // tp, tp=tp), knobs=Knobs(micro_batch=1, recompute=recompute))
        for tp in (1, 2, 4, 8)
        for recompute in ("none", "selective", "full")
    ]
    columns = table([row_of(item, item.accumulation(large)) for item in candidates])
    seconds = price(DENSE, on, large, columns, Calibration(compute=0.6, communication=0.7)).step_seconds
    observations = [
        Observation(
            model=DENSE, cluster=on, workload=large, candidate=item, accumulation=item.accumulation(large), step_seconds=float(step)
        )
        for item, step in zip(candidates, seconds, strict=True)
    ]  # fmt: skip
    found = fitted(observations).calibration
    assert price(DENSE, on, large, columns, found).step_seconds == pytest.approx(seconds, rel=0.05)


def test_a_factor_leaves_the_maximum_that_it_starts_at() -> None:
    """``tensor`` is at most 1, and 1 in the prior."""
    plans = [(plan(item), plan(item, Calibration(tensor=0.5))) for item in SETTINGS]
    observations = [
        Observation(
            model=DENSE, cluster=ON, workload=WORKLOAD, candidate=prior.candidate, accumulation=prior.accumulation,
            step_seconds=truth.estimate.step_seconds,
        )
        for prior, truth in plans
    ]  # fmt: skip
    assert fitted(observations, free={"tensor": FACTORS["tensor"]}).calibration.tensor == pytest.approx(0.5, abs=0.1)


def test_the_memory_factor_is_recovered() -> None:
    assert fit(records(Calibration(memory=1.3))).memory == pytest.approx(1.3, rel=0.02)


def test_fit_without_records_returns_the_prior() -> None:
    prior = Calibration(compute=1.2, memory=1.1, trials=7)
    assert fit([]) == NEUTRAL
    assert fit([], prior) == prior


def test_simulated_and_failed_trials_do_not_count_but_pruned_ones_do() -> None:
    [record] = records(Calibration(compute=3.0), SETTINGS[:1])
    others = [replace(record, measurement=replace(record.measurement, kind=Kind.SIMULATED))]
    ends = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.NAN)
    others += [replace(record, measurement=replace(record.measurement, outcome=end)) for end in ends]
    assert fit(others) == NEUTRAL
    ended_early = replace(record, measurement=replace(record.measurement, outcome=Outcome.PRUNED))
    assert fit([*others, ended_early]) == fit([record])


def shadow_record(record: Record, communication: float) -> Record:
    """The record of a shadow run: one rank, whose modelled parts are wrong by the factor ``communication``."""
    truth = asdict(plan(record.plan.candidate, Calibration(compute=1.4)).estimate.time)
    time = {name: seconds * (communication if name in MODELLED_PARTS else 1.0) for name, seconds in truth.items()}
    peak = record.measurement.peak_memory_bytes[:1]
    seen = replace(record.measurement, kind=Kind.SHADOW, time=time, step_seconds=sum(time.values()), peak_memory_bytes=peak)
    return replace(record, measurement=replace(seen, exposed_comm_ratio=None))


def test_a_shadow_run_fits_measured_parts_only() -> None:
    real = records(Calibration(compute=1.4, memory=1.3))
    found = fit([shadow_record(record, communication=50.0) for record in real])
    assert found.compute == pytest.approx(1.4, rel=0.1)
    assert found.memory == pytest.approx(1.3, rel=0.02)
    assert found.communication == pytest.approx(1.0, abs=0.05)
    assert found == fit([shadow_record(record, communication=1.0) for record in real])


@pytest.mark.parametrize("times", [0.5, 1.0, 2.0, 10.0])
def test_a_single_trial_gives_bounded_factors(times: float) -> None:
    one = plan(SETTINGS[0])
    seconds = one.estimate.step_seconds * times
    found = fit([Record(plan=one, measurement=measured(one.estimate, step_seconds=seconds, exposed_comm_ratio=None))])
    for factor in (found.compute, found.communication, found.launch, found.memory):
        assert 0 <= factor <= max(1.0, 1.35 * times)
    assert 0 <= found.overhead_seconds <= seconds
    again = plan(SETTINGS[0], found).estimate.step_seconds
    assert abs(again - seconds) <= abs(one.estimate.step_seconds - seconds) + 1e-9


def test_an_oom_raises_the_memory_factor_above_the_capacity() -> None:
    full = plan(SETTINGS[1])
    assert full.estimate.fits
    tight = replace(ON.device, usable_memory_bytes=int(full.estimate.peak_memory_bytes * 1.2))
    small = replace(full, cluster=replace(ON, device=tight))
    failed = Record(plan=small, measurement=Measurement(plan_id="", kind=Kind.REAL, outcome=Outcome.OOM))
    found = fit([failed])
    assert found.memory > 1
    assert found.trials == 1
    assert plan(SETTINGS[1], found).estimate.peak_memory_bytes > tight.usable_memory_bytes
    worst = fit([*records(Calibration(memory=0.9)), failed])
    assert worst.memory == found.memory


def test_an_observation_ran_unless_it_says_that_it_was_out_of_memory() -> None:
    """Without a peak, which would also bound the memory factor."""
    full = plan(SETTINGS[1])
    tight = replace(ON, device=replace(ON.device, usable_memory_bytes=int(full.estimate.peak_memory_bytes * 1.2)))
    ran = Observation(
        model=DENSE, cluster=tight, workload=WORKLOAD, candidate=full.candidate, accumulation=full.accumulation,
        step_seconds=full.estimate.step_seconds,
    )  # fmt: skip
    assert fitted([ran]).calibration.memory == NEUTRAL.memory
    assert fitted([replace(ran, out_of_memory=True)]).calibration.memory > NEUTRAL.memory


def test_factors_do_not_depend_on_the_order_of_records() -> None:
    known = records(Calibration(compute=1.3, communication=1.2))
    assert fit(known) == fit(known)
    there, back = fit(known), fit(known[::-1])
    assert (there.compute, there.communication, there.memory) == pytest.approx((back.compute, back.communication, back.memory))
