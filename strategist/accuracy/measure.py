"""Accuracy: every published row priced like a plan, and statistics of the errors."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strategist.accuracy.case import Case, case_of
from strategist.accuracy.case_observation import comparable_memory_bytes, observation
from strategist.accuracy.error_metrics import Figures, PricedCase, figures
from strategist.accuracy.row import Row
from strategist.accuracy.row_cluster import device_name
from strategist.accuracy.skip_reason import Skip, Skipped
from strategist.contract.progress import counted
from strategist.cost.observation import tables
from strategist.cost.shipped_calibrations import Shipped, calibration_for
from strategist.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Metrics by source (a file's stem), device and model family; over all rows (``overall``), and as the mean over the sources."""

    sources: tuple[Figures, ...]
    devices: tuple[Figures, ...]
    families: tuple[Figures, ...]
    overall: Figures
    mean_of_sources: Figures
    judged: tuple[PricedCase, ...]


@dataclass(frozen=True, kw_only=True)
class SkippedRow:
    """A row that cannot be priced, with the reason."""

    row: Row
    reason: Skip


def read_cases(rows: Iterable[Row]) -> tuple[list[Case], list[SkippedRow]]:
    """Cases of all rows that can be priced, and the skipped rows."""
    cases: list[Case] = []
    left_out: list[SkippedRow] = []
    for row in rows:
        try:
            cases.append(case_of(row))
        except Skipped as skip:
            left_out.append(SkippedRow(row=row, reason=skip.reason))
        except InputError:  # its values break a law of the contract
            left_out.append(SkippedRow(row=row, reason=Skip.IMPOSSIBLE))
    return cases, left_out


def price_cases(cases: Sequence[Case], fits: Shipped | None = None) -> list[PricedCase]:
    """Predictions for all cases by the calibrations of their stacks: the shipped ones, or those in ``fits``."""
    found: dict[int, PricedCase] = {}
    for group in counted(tuple(tables([observation(case) for case in cases])), "groups of runs"):
        calibration = calibration_for(group.common.stack, fits)
        priced = group.priced(calibration)
        low, high = calibration.step_range
        for at, index in enumerate(group.members):
            case, seconds = cases[index], float(priced.step_seconds[at])
            found[index] = PricedCase(
                case=case,
                step_seconds=seconds,
                peak_memory_bytes=comparable_memory_bytes(priced, case, at),
                fit_confidence=priced.fit_confidence(at),
                interval=(low * seconds, high * seconds),
            )
    return [found[index] for index in range(len(cases))]


def accuracy(rows: Iterable[Row]) -> Accuracy:
    """The cost model's errors on published rows."""
    cases, left_out = read_cases(rows)
    judged = price_cases(cases)
    sources = _by(lambda row: row.file, judged, left_out)
    return Accuracy(
        sources=sources,
        devices=_by(device_name, judged, left_out),
        families=_by(family, judged, left_out),
        overall=figures("overall", judged, _reasons(left_out)),
        mean_of_sources=_mean_of(sources),
        judged=tuple(judged),
    )


_FAMILY = re.compile(r"(?:tiny[- ]?)?([a-z]+?)(?=v?[0-9]|[^a-z]|$)")


def family(row: Row) -> str:
    """Family of a row's model: the first word of its name (after the test suite's name), and whether it has experts."""
    name = row.model.rpartition(":")[2].lower()
    word = found[1] if (found := _FAMILY.match(name)) else name or "not stated"
    return word + (" (experts)" if row.experts else "")


def _by(name: Callable[[Row], str], judged: Sequence[PricedCase], left_out: Sequence[SkippedRow]) -> tuple[Figures, ...]:
    """Metrics of the rows, grouped by name."""
    used: dict[str, list[PricedCase]] = {}
    others: dict[str, list[SkippedRow]] = {}
    for item in judged:
        used.setdefault(name(item.case.row), []).append(item)
    for left in left_out:
        others.setdefault(name(left.row), []).append(left)
    return tuple(figures(group, used.get(group, ()), _reasons(others.get(group, ()))) for group in sorted({*used, *others}))


def _reasons(left_out: Sequence[SkippedRow]) -> dict[str, int]:
    """Number of skipped rows by reason, most frequent first."""
    return dict(Counter(left.reason.value for left in left_out).most_common())


_MEANS = (
    "step_time_mape", "step_time_median_ape", "step_time_bias", "spearman", "top1_regret", "top1_regret_worst", "peak_memory_mape",
    "oom_f1", "interval_coverage",
)  # fmt: skip


def _mean_of(sources: Sequence[Figures]) -> Figures:
    """Unweighted mean of the sources' metrics, so that a large sweep counts as much as a small table."""
    means: dict[str, Any] = {}
    for name in _MEANS:
        known = [value for source in sources if (value := getattr(source, name)) is not None]
        means[name] = float(np.mean(known)) if known else None
    used, skipped = (sum(getattr(source, name) for source in sources) for name in ("rows_used", "rows_skipped"))
    return Figures(name="mean of sources", rows_used=used, rows_skipped=skipped, **means)
