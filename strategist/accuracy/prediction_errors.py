"""Accuracy: every published row priced like a plan, and statistics of the errors."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from strategist.accuracy.case import Case, case_of
from strategist.accuracy.case_observation import comparable_memory_bytes, observation
from strategist.accuracy.error_metrics import Figures, PricedCase, figures
from strategist.accuracy.grouping import grouped
from strategist.accuracy.row import Row
from strategist.accuracy.row_cluster import device_name
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.contract.progress import counted
from strategist.cost.observation import tables
from strategist.cost.shipped_calibrations import Shipped, calibration_for
from strategist.errors import InputError
from strategist.frozen import frozen


@frozen
class Accuracy:
    """Metrics by source (a file's stem), device and model family; over all rows (``overall``), and as the mean over the sources."""

    sources: tuple[Figures, ...]
    devices: tuple[Figures, ...]
    families: tuple[Figures, ...]
    overall: Figures
    mean_of_sources: Figures
    priced_cases: tuple[PricedCase, ...]


@frozen
class SkippedRow:
    """A row that cannot be priced, with the reason."""

    row: Row
    reason: SkipReason


def read_cases(rows: Iterable[Row]) -> tuple[list[Case], list[SkippedRow]]:
    """Cases of all rows that can be priced, and the skipped rows."""
    cases: list[Case] = []
    skipped_rows: list[SkippedRow] = []
    for row in rows:
        try:
            cases.append(case_of(row))
        except Skipped as error:
            skipped_rows.append(SkippedRow(row=row, reason=error.reason))
        except InputError:  # its values break a law of the contract
            skipped_rows.append(SkippedRow(row=row, reason=SkipReason.IMPOSSIBLE))
    return cases, skipped_rows


def price_cases(cases: Sequence[Case], fits: Shipped | None = None) -> list[PricedCase]:
    """Predictions for all cases by the calibrations of their stacks: the shipped ones, or those in ``fits``."""
    priced_cases: dict[int, PricedCase] = {}
    for group in counted(tuple(tables([observation(case) for case in cases])), "groups of runs"):
        calibration = calibration_for(group.common.stack, fits)
        priced = group.priced(calibration)
        low, high = calibration.step_range
        for row, index in enumerate(group.members):
            case, seconds = cases[index], float(priced.step_seconds[row])
            priced_cases[index] = PricedCase(
                case=case,
                step_seconds=seconds,
                peak_memory_bytes=comparable_memory_bytes(priced, case, row),
                fit_confidence=priced.fit_confidence(row),
                interval=(low * seconds, high * seconds),
            )
    return [priced_cases[index] for index in range(len(cases))]


def accuracy(rows: Iterable[Row]) -> Accuracy:
    """The cost model's errors on published rows."""
    cases, skipped_rows = read_cases(rows)
    priced_cases = price_cases(cases)
    sources = _by(lambda row: row.file, priced_cases, skipped_rows)
    return Accuracy(
        sources=sources,
        devices=_by(device_name, priced_cases, skipped_rows),
        families=_by(family, priced_cases, skipped_rows),
        overall=figures("overall", priced_cases, _reasons(skipped_rows)),
        mean_of_sources=_mean_of(sources),
        priced_cases=tuple(priced_cases),
    )


_FAMILY = re.compile(r"(?:tiny[- ]?)?([a-z]+?)(?=v?[0-9]|[^a-z]|$)")


def family(row: Row) -> str:
    """Family of a row's model: the first word of its name (after the test suite's name), and whether it has experts."""
    name = row.model.rpartition(":")[2].lower()
    word = match[1] if (match := _FAMILY.match(name)) else name or "not stated"
    return word + (" (experts)" if row.experts else "")


def _by(name: Callable[[Row], str], priced_cases: Sequence[PricedCase], skipped_rows: Sequence[SkippedRow]) -> tuple[Figures, ...]:
    """Metrics of the rows, grouped by name."""
    priced = grouped(priced_cases, lambda item: name(item.case.row))
    skipped = grouped(skipped_rows, lambda item: name(item.row))
    return tuple(figures(group, priced.get(group, ()), _reasons(skipped.get(group, ()))) for group in sorted({*priced, *skipped}))


def _reasons(skipped_rows: Sequence[SkippedRow]) -> dict[str, int]:
    """Number of skipped rows by reason, most frequent first."""
    return dict(Counter(row.reason.value for row in skipped_rows).most_common())


_MEANS = (
    "step_time_mape", "step_time_median_ape", "step_time_bias", "spearman", "top1_regret", "top1_regret_worst", "peak_memory_mape",
    "oom_f1", "interval_coverage",
)  # fmt: skip


def _mean_of(sources: Sequence[Figures]) -> Figures:
    """Unweighted mean of the sources' metrics, so that a large sweep counts as much as a small table."""
    means: dict[str, Any] = {}
    for name in _MEANS:
        values = [value for source in sources if (value := getattr(source, name)) is not None]
        means[name] = float(np.mean(values)) if values else None
    rows_used, rows_skipped = (sum(getattr(source, name) for source in sources) for name in ("rows_used", "rows_skipped"))
    return Figures(name="mean of sources", rows_used=rows_used, rows_skipped=rows_skipped, **means)
