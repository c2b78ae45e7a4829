"""Refit: fits recover known factors, and a few rows reduce the error on the rest."""

from dataclasses import replace
from math import inf
from statistics import median

import pytest

from strategist.accuracy.case import Case
from strategist.accuracy.case_columns import columns_of
from strategist.accuracy.few_shot_calibration import few_shot_errors
from strategist.accuracy.prediction_errors import price_cases, read_cases
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


def with_true_calibration(cases: list[Case], truth: Calibration) -> list[Case]:
    """The cases with the step times that ``truth`` predicts."""
    seconds = columns_of(cases).seconds(truth).tolist()
    return [replace(case, step_seconds=step) for case, step in zip(cases, seconds, strict=True)]


@pytest.mark.full
def test_refit_recovers_a_compute_factor(foundry: list[Case]) -> None:
    found = {item.stack: item for item in refit(columns_of(with_true_calibration(foundry, Calibration(compute=1.6))))}
    assert set(found) == {ANY_STACK, "any torch", "llm-foundry"}
    own = found["llm-foundry"]
    assert own.devices == ("A100-80GB",)
    assert own.calibration.compute == pytest.approx(1.6, rel=0.1)
    assert own.noise < 0.03


def gpu_trials(device: str) -> list[Record]:
    """Our own trials on a device, with the device's current profile."""
    records = history.read(MEASUREMENTS / f"{device}.jsonl").records
    return [
        replace(record, plan=replace(record.plan, cluster=replace(record.plan.cluster, device=load_device(device)[0])))
        for record in records
    ]


def test_native_factors_come_from_our_own_gpu_trials() -> None:
    """Elementwise kernels take their bytes at the profile's rate; no plan assumes matmuls above the profile's curve; the device
    waits 2 ms for the host in a micro-batch.
    """
    shown = [*gpu_trials("h200"), *gpu_trials("h100-sxm")]
    found, published = native(shipped().fits, shown), next(item for item in shipped().fits if item.stack == "torchtitan")
    factors = found.calibration
    assert factors.compute == 1.0
    assert factors.memory_bound == pytest.approx(1.0, abs=0.03)
    assert factors.attention == pytest.approx(1.0, abs=0.1)
    assert 0.001 < factors.overhead_seconds < 0.01 < 32 * published.calibration.update_seconds
    assert factors.update_seconds == 0
    assert 0.001 < factors.micro_batch_seconds < 0.003
    assert native(shipped().fits, []).calibration == published.calibration


@pytest.mark.parametrize("device", ["h200", "h100-sxm"])
def test_priced_kernel_time_matches_the_profiled_time_by_kind(device: str) -> None:
    """For plans without offload. Matmuls of a short step run at higher clocks than sustained ones, by a quarter at most."""
    timed = [each for each in gpu_trials(device) if each.measurement.time and each.plan.candidate.knobs.offload == "none"]
    for part, least, most in (("matmul", 1.0, 1.3), ("attention", 0.85, 1.05), ("memory_bound", 0.75, 1.1)):
        shares = []
        for record in timed:
            plan, time = record.plan, record.measurement.time or {}
            columns = table([row_of(plan.candidate, plan.accumulation)])
            priced = price(plan.model, plan.cluster, plan.workload, columns, NEUTRAL, stack_of_plan(plan))
            shares.append(float(priced.time[part][0]) / time[part])
        assert least < min(shares) <= max(shares) < most, part


@pytest.mark.parametrize(("device", "least"), [("h200", 16), ("h100-sxm", 5)])
def test_price_errors_of_our_own_gpu_trials_are_small(device: str, least: int) -> None:
    """No fit saw these steps, except for the overhead outside the parts, on the H200. Memory is allocated memory.
    Offload is excluded on the H100: the machine had 16 cores of one socket, the profile assumes two sockets.
    """
    cases = [case for case in cases_of(gpu_trials(device), f"{device}.jsonl") if case.step_seconds]
    found = price_cases(cases)
    errors = [
        abs(item.step_seconds / (item.case.step_seconds or inf) - 1)
        for item in found
        if device == "h200" or item.case.candidate.knobs.offload == "none"
    ]
    assert len(errors) >= least
    assert median(errors) < 0.1
    assert max(errors) < 0.15
    memory_errors = [abs((item.peak_memory_bytes or 0) / (item.case.peak_memory_bytes or inf) - 1) for item in found]
    assert median(memory_errors) < 0.005
    assert max(memory_errors) < 0.1


def test_too_few_rows_give_no_fit(foundry: list[Case]) -> None:
    assert refit(columns_of(foundry[: MIN_ROWS - 1])) == ()


def test_ten_rows_reduce_the_error_on_the_remaining_rows(foundry: list[Case]) -> None:
    [found] = few_shot_errors(with_true_calibration(foundry[::2], Calibration(compute=2.5, launch=2.0)), shots=(0, 10))
    assert found.rows == 30
    assert found.mape[10] < 0.3 * found.mape[0]


def test_predicted_steps_lie_inside_their_interval(foundry: list[Case]) -> None:
    for item in price_cases(foundry[:5]):
        assert item.interval is not None
        assert item.interval[0] < item.step_seconds < item.interval[1]


def test_memory_spread_grows_with_the_error_of_the_rows() -> None:
    cases, _ = read_cases(read_rows(PUBLISHED / "torchtitan_2024_2025.csv"))
    spreads = memory_spreads(cases)
    assert set(spreads) == {"torchtitan", "any torch", ANY_STACK}
    doubled = [replace(case, peak_memory_bytes=2 * (case.peak_memory_bytes or 0.0)) for case in cases]
    assert memory_spreads(doubled)["torchtitan"] > 5 * spreads["torchtitan"]


@pytest.mark.full
def test_an_outlier_source_hardly_changes_the_shared_fit(foundry: list[Case]) -> None:
    """Steps of the outlier source take three times the sum of their parts."""
    good = with_true_calibration(foundry, Calibration(compute=1.3))
    apart = [replace(case.row, file="apart") for case in foundry]
    bad = [replace(case, row=row, step_seconds=3 * (case.step_seconds or 0.0)) for case, row in zip(foundry, apart, strict=True)]
    alone = refit(columns_of(good))[-1].calibration
    with_outlier = refit(columns_of([*good, *bad]))[-1].calibration
    assert with_outlier.compute == pytest.approx(alone.compute, rel=0.25)
