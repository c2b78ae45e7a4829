"""Held-out errors: errors of predictions for rows of a source or device that the fit did not use."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from strategist.accuracy.case import Case
from strategist.accuracy.case_columns import CaseColumns
from strategist.accuracy.error_metrics import PricedCase, median_or_none
from strategist.accuracy.grouping import grouped
from strategist.accuracy.refit import refit
from strategist.cost.calibration import Calibration
from strategist.cost.layer_flops import model_flops_per_token
from strategist.cost.shipped_calibrations import ANY_STACK, FittedTo, Shipped, calibration_for, family_name
from strategist.frozen import frozen

SOURCE_GROUPS = {
    "NVIDIA": (
        "megatron_lm_golden_values", "megatron_lm_scaling", "mlperf_training_41_50", "nvidia_megatron_bridge_perf",
        "nvidia_megatron_bridge_skills_memory", "nvidia_nemo",
    ),
}  # fmt: skip
"""Sources of one publisher about its own stack; they are held out together."""

RULE_MFU = 0.4
"""Rule of thumb that predictions are compared with: model FLOPs at 40 % of the peak."""

INTERVAL_QUANTILES = (0.05, 0.95)
"""Quantiles of the 90 % interval of a step."""

MIN_SOURCES = 5
"""Minimum number of sources of a family for a step range of its own."""


@frozen
class HeldOutErrors:
    """Errors on the rows of one source or device, priced by fits to all other rows. Errors are medians of absolute relative errors;
    None if no row has the value.

    error: of the step time.
    rule_error: of the step time by the rule of thumb ``RULE_MFU``.
    seen_error: of the step time by fits that include these rows.
    bias: median of predicted over published step time, minus 1.
    memory_error: of peak memory.
    covered: share of step times within the predicted interval.
    """

    name: str
    timed_rows: int
    error: float | None
    rule_error: float | None
    seen_error: float | None
    bias: float | None
    memory_rows: int
    memory_error: float | None
    covered: float | None


def source_of(case: Case) -> str:
    """The group in which a row is held out: its publisher, or its file."""
    return next((name for name, files in SOURCE_GROUPS.items() if case.row.file in files), case.row.file)


def file_of(case: Case) -> str:
    """File of a row."""
    return case.row.file


def device_of(case: Case) -> str:
    """Name of a row's device."""
    return case.cluster.device.name


def held_out_step_seconds(
    columns: CaseColumns, group: Callable[[Case], str], fits_to_all: Sequence[FittedTo], name: str
) -> dict[int, float]:
    """Step seconds of one group by factors fitted to all other rows, by row position; the search begins at the factors of
    ``fits_to_all``.
    """
    start: dict[str, Calibration] = {item.stack: item.calibration for item in fits_to_all}
    group_rows, other_rows = split_positions(columns.cases, group, name)
    fits = Shipped(source=f"without {name}", fits=refit(columns.take(other_rows), start))
    return dict(zip(group_rows, columns.take(group_rows).seconds_by(fits).tolist(), strict=True))


def split_positions(cases: Sequence[Case], group: Callable[[Case], str], name: str) -> tuple[list[int], list[int]]:
    """Positions of the rows of one group, and of all other rows."""
    group_rows = [position for position, case in enumerate(cases) if group(case) == name]
    return group_rows, sorted(set(range(len(cases))) - set(group_rows))


def rule_of_thumb_seconds(case: Case) -> float:
    """Step seconds by the rule of thumb, with the peak of bf16, or of fp16 on devices without bf16."""
    peaks = case.cluster.device.peak_flops
    flops = model_flops_per_token(case.model, case.workload) * case.workload.tokens_per_step
    return flops / (RULE_MFU * case.cluster.peak("bf16" if "bf16" in peaks else "fp16"))


def step_ranges(priced_cases: Sequence[PricedCase]) -> dict[str, tuple[float, float]]:
    """Quantiles ``INTERVAL_QUANTILES`` of measured over predicted step time: of all benchmarks, and of each family with
    ``MIN_SOURCES``.
    """
    timed = [item for item in priced_cases if item.case.fits_times and item.case.step_seconds]
    families = by_group(timed, lambda case: family_name(case.stack.family))
    known_families = {
        name: family_cases for name, family_cases in families.items() if len(by_group(family_cases, file_of)) >= MIN_SOURCES
    }
    return {name: _step_range(family_cases) for name, family_cases in {ANY_STACK: timed, **known_families}.items()}


def _step_range(priced_cases: Sequence[PricedCase]) -> tuple[float, float]:
    """The quantiles of these rows; each source has the same weight."""
    errors = [[_ratio(item) for item in source_cases] for source_cases in by_group(priced_cases, file_of).values()]
    values = np.concatenate([np.array(source_cases) for source_cases in errors])
    weights = np.concatenate([np.full(len(source_cases), 1 / len(source_cases)) for source_cases in errors])
    order = np.argsort(values)
    shares = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    low, high = np.interp(INTERVAL_QUANTILES, shares, values[order])
    return exp(float(low)), exp(float(high))


def with_intervals(priced_cases: Sequence[PricedCase], fits: Shipped) -> list[PricedCase]:
    """The predictions with intervals from the step ranges of ``fits``."""
    ranges = {item.case.stack: calibration_for(item.case.stack, fits).step_range for item in priced_cases}
    return [
        replace(item, interval=(low * item.step_seconds, high * item.step_seconds))
        for item in priced_cases
        for low, high in (ranges[item.case.stack],)
    ]


def held_out_errors(
    priced_cases: Sequence[PricedCase], fitted_cases: Sequence[PricedCase], group: Callable[[Case], str]
) -> tuple[HeldOutErrors, ...]:
    """Errors by group of held-out rows; ``fitted_cases`` are the same rows, priced by fits that used them."""
    fitted_by_case = {id(item.case): item for item in fitted_cases}
    return tuple(
        _figures(name, group_cases, [fitted_by_case[id(item.case)] for item in group_cases])
        for name, group_cases in sorted(by_group(priced_cases, group).items())
    )


def mean_error(errors: Sequence[HeldOutErrors], name: str = "error", *, min_rows: int = 8) -> float:
    """Mean of one of the errors over the groups with at least ``min_rows`` rows."""
    rows = "memory_rows" if name == "memory_error" else "timed_rows"
    return float(np.mean([getattr(item, name) for item in errors if getattr(item, rows) >= min_rows]))


def by_group(priced_cases: Sequence[PricedCase], group: Callable[[Case], str]) -> dict[str, list[PricedCase]]:
    """Predictions by the group of their row."""
    return grouped(priced_cases, lambda item: group(item.case))


def _figures(name: str, priced_cases: Sequence[PricedCase], fitted_cases: Sequence[PricedCase]) -> HeldOutErrors:
    timed = [item for item in priced_cases if item.case.step_seconds]
    errors = np.array([item.step_seconds / (item.case.step_seconds or 1.0) - 1 for item in timed])
    rule = [rule_of_thumb_seconds(item.case) / (item.case.step_seconds or 1.0) - 1 for item in timed]
    in_interval = [item.interval[0] <= (item.case.step_seconds or 0.0) <= item.interval[1] for item in timed if item.interval]
    memory = [error for item in priced_cases if (error := item.memory_error) is not None]
    return HeldOutErrors(
        name=name,
        timed_rows=len(timed),
        error=median_or_none(np.abs(errors)),
        rule_error=median_or_none(np.abs(rule)),
        seen_error=median_or_none(np.abs([error for item in fitted_cases if (error := item.time_error) is not None])),
        bias=median_or_none(errors),
        memory_rows=len(memory),
        memory_error=median_or_none(np.abs(memory)),
        covered=float(np.mean(in_interval)) if in_interval else None,
    )


def _ratio(item: PricedCase) -> float:
    return log((item.case.step_seconds or 1.0) / item.step_seconds)
