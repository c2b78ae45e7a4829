"""Refit: rows that a truth made give it back, and a handful of them shrinks the error on the rest."""

from dataclasses import replace
from math import inf
from statistics import median

import pytest

from strategist.accuracy.case import Case
from strategist.accuracy.case_columns import columns_of
from strategist.accuracy.few_shot_calibration import few_shot_errors
from strategist.accuracy.measure import price_cases, read_cases
from strategist.accuracy.refit import MIN_ROWS, memory_spreads, native, refit
from strategist.accuracy.row import read_rows
from strategist.accuracy.trial_cases import cases_of
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.price import price
from strategist.cost.shipped_calibrations import ANY_STACK, shipped
from strategist.expr.columns import row_of, table
from strategist.paths import data_dir
from strategist.profiles import history
from strategist.profiles.hardware import load_device
from strategist.profiles.history import Record
from strategist.profiles.stacks import stack_of_plan

MEASUREMENTS = data_dir("profiles") / "measurements"
PUBLISHED = MEASUREMENTS / "published"


@pytest.fixture(scope="module")
def foundry() -> list[Case]:
    """Sixty runs of MPT models on A100 with one stack."""
    cases, _ = read_cases(read_rows(PUBLISHED / "mosaicml_llm_foundry.csv"))
    return [case for case in cases if case.cluster.device.name == "A100-80GB"][:60]


def slowed(cases: list[Case], truth: Calibration) -> list[Case]:
    """The cases as if ``truth`` were how things are."""
    seconds = columns_of(cases).seconds(truth).tolist()
    return [replace(case, step_seconds=step) for case, step in zip(cases, seconds, strict=True)]


@pytest.mark.full
def test_a_stack_that_computes_slower_is_found(foundry: list[Case]) -> None:
    found = {item.stack: item for item in refit(columns_of(slowed(foundry, Calibration(compute=1.6))))}
    assert set(found) == {ANY_STACK, "any torch", "llm-foundry"}
    own = found["llm-foundry"]
    assert own.devices == ("A100-80GB",)
    assert own.calibration.compute == pytest.approx(1.6, rel=0.1)
    assert own.noise < 0.03


def trials(device: str) -> list[Record]:
    """Our own on a device, as its profile is today."""
    records = history.read(MEASUREMENTS / f"{device}.jsonl").records
    return [
        replace(record, plan=replace(record.plan, cluster=replace(record.plan.cluster, device=load_device(device)[0])))
        for record in records
    ]


def test_plans_are_priced_by_what_trials_on_gpus_show_of_kernels_and_beside_them() -> None:
    """Elementwise kernels take what their bytes take at the rate of the device's profile; no plan counts on matmuls above its
    curve."""
    shown = [*trials("h200"), *trials("h100-sxm")]
    found, published = native(shipped().fits, shown), next(item for item in shipped().fits if item.stack == "torchtitan")
    factors = found.calibration
    assert factors.compute == 1.0
    assert factors.memory_bound == pytest.approx(1.0, abs=0.03)
    assert factors.attention == pytest.approx(1.0, abs=0.1)
    assert 0.001 < factors.overhead_seconds < 0.01 < published.calibration.overhead_seconds
    assert native(shipped().fits, []).calibration == published.calibration


@pytest.mark.parametrize("device", ["h200", "h100-sxm"])
def test_kernels_of_each_kind_take_what_is_priced(device: str) -> None:
    """Of plans whose states lie on the device. Matmuls of a short step run at clocks that no hours hold, by a quarter at most."""
    timed = [each for each in trials(device) if each.measurement.time and each.plan.candidate.knobs.offload == "none"]
    for part, least, most in (("matmul", 1.0, 1.3), ("attention", 0.85, 1.05), ("memory_bound", 0.75, 1.1)):
        shares = []
        for record in timed:
            plan, time = record.plan, record.measurement.time or {}
            columns = table([row_of(plan.candidate, plan.accumulation)])
            priced = price(plan.model, plan.cluster, plan.workload, columns, NEUTRAL, stack_of_plan(plan))
            shares.append(float(priced.time[part][0]) / time[part])
        assert least < min(shares) <= max(shares) < most, part


@pytest.mark.parametrize(("device", "least"), [("h200", 16), ("h100-sxm", 5)])
def test_plans_that_ran_on_a_gpu_are_priced_as_they_ran(device: str, least: int) -> None:
    """No fit saw these steps: only what they take beside their parts, on the H200. Memory is what was allocated.

    What hosts update is left out on the H100: 16 cores of one were there, where two sockets are assumed.
    """
    cases = [case for case in cases_of(trials(device), f"{device}.jsonl") if case.step_seconds]
    found = price_cases(cases)
    errors = [
        abs(item.step_seconds / (item.case.step_seconds or inf) - 1)
        for item in found
        if device == "h200" or item.case.candidate.knobs.offload == "none"
    ]
    assert len(errors) >= least
    assert median(errors) < 0.1
    assert max(errors) < 0.15
    held = [abs((item.peak_memory_bytes or 0) / (item.case.peak_memory_bytes or inf) - 1) for item in found]
    assert median(held) < 0.005
    assert max(held) < 0.1


def test_too_few_rows_fit_nothing(foundry: list[Case]) -> None:
    assert refit(columns_of(foundry[: MIN_ROWS - 1])) == ()


def test_a_handful_of_rows_shrinks_the_error_on_the_rest(foundry: list[Case]) -> None:
    [found] = few_shot_errors(slowed(foundry[::2], Calibration(compute=2.5, launch=2.0)), shots=(0, 10))
    assert found.rows == 30
    assert found.mape[10] < 0.3 * found.mape[0]


def test_judged_steps_come_with_a_range_around_them(foundry: list[Case]) -> None:
    for item in price_cases(foundry[:5]):
        assert item.interval is not None
        assert item.interval[0] < item.step_seconds < item.interval[1]


def test_memory_is_spread_as_far_as_rows_show() -> None:
    cases, _ = read_cases(read_rows(PUBLISHED / "torchtitan_2024_2025.csv"))
    spreads = memory_spreads(cases)
    assert set(spreads) == {"torchtitan", "any torch", ANY_STACK}
    doubled = [replace(case, peak_memory_bytes=2 * (case.peak_memory_bytes or 0.0)) for case in cases]
    assert memory_spreads(doubled)["torchtitan"] > 5 * spreads["torchtitan"]


@pytest.mark.full
def test_a_source_that_no_fit_explains_moves_others_little(foundry: list[Case]) -> None:
    """Its steps take three times as long as all of their parts."""
    good = slowed(foundry, Calibration(compute=1.3))
    apart = [replace(case.row, file="apart") for case in foundry]
    bad = [replace(case, row=row, step_seconds=3 * (case.step_seconds or 0.0)) for case, row in zip(foundry, apart, strict=True)]
    alone = refit(columns_of(good))[-1].calibration
    beside = refit(columns_of([*good, *bad]))[-1].calibration
    assert beside.compute == pytest.approx(alone.compute, rel=0.25)
