"""Error metrics: relative errors, out-of-memory verdicts, rank correlation and regret in sweeps."""

from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from strategist.accuracy.case import Case
from strategist.accuracy.grouping import grouped
from strategist.frozen import frozen

Floats = NDArray[np.float64]
MIN_RANKED_LAYOUTS = 3
"""Minimum number of layouts in a sweep for a rank correlation or a regret."""


@frozen
class PricedCase:
    """A case with its predictions.

    peak_memory_bytes: bytes comparable to the published value.
    fit_confidence: probability that the plan fits into the device's memory.
    interval: 90 % interval of ``step_seconds``.
    """

    case: Case
    step_seconds: float
    peak_memory_bytes: float
    fit_confidence: float
    interval: tuple[float, float] | None = None

    @property
    def fits(self) -> bool:
        """Whether it fits with a probability of at least 0.5."""
        return self.fit_confidence >= 0.5

    @property
    def time_error(self) -> float | None:
        """Predicted over published step time, minus 1; None if not published."""
        return self.step_seconds / self.case.step_seconds - 1 if self.case.step_seconds else None

    @property
    def memory_error(self) -> float | None:
        return self.peak_memory_bytes / self.case.peak_memory_bytes - 1 if self.case.peak_memory_bytes else None


@frozen
class Confusion:
    """Confusion matrix of out-of-memory predictions.

    hits: ran out of memory, as predicted.
    false_alarms: ran, but out of memory was predicted.
    misses: ran out of memory, but a fit was predicted.
    passes: ran, as predicted.
    """

    hits: int = 0
    false_alarms: int = 0
    misses: int = 0
    passes: int = 0

    @property
    def f1(self) -> float | None:
        """F1 score of the prediction "runs out of memory"; None if no row ran out."""
        return 2 * self.hits / (2 * self.hits + self.false_alarms + self.misses) if self.hits + self.misses else None


@frozen
class Figures:
    """Metrics of a group of rows; None if no row has the value. Errors are fractions of the published value.

    ``step_time_rows``, ``ranked_sweeps``, ``sweeps`` (those with a regret), ``peak_memory_rows`` and ``interval_rows`` are the
    sample sizes.
    """

    name: str
    rows_used: int
    rows_skipped: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    step_time_rows: int = 0
    step_time_mape: float | None = None
    step_time_median_ape: float | None = None
    step_time_bias: float | None = None
    spearman: float | None = None
    top1_regret: float | None = None
    top1_regret_worst: float | None = None
    sweeps: int = 0
    ranked_sweeps: int = 0
    peak_memory_rows: int = 0
    peak_memory_mape: float | None = None
    oom_f1: float | None = None
    oom_confusion: Confusion = Confusion()
    interval_rows: int = 0
    interval_coverage: float | None = None


def figures(name: str, priced_cases: Sequence[PricedCase], skipped: dict[str, int] | None = None) -> Figures:
    """All metrics of a group of rows."""
    times = np.array([item.time_error for item in priced_cases if item.time_error is not None])
    memory = np.array([item.memory_error for item in priced_cases if item.memory_error is not None])
    orders = [order for sweep in sweeps(priced_cases) if (order := spearman(sweep)) is not None]
    regrets = [slowdown for sweep in sweeps(priced_cases) if (slowdown := regret(sweep)) is not None]
    in_interval = [
        item.interval[0] <= item.case.step_seconds <= item.interval[1]
        for item in priced_cases
        if item.interval and item.case.step_seconds
    ]
    confusion = _confusion(priced_cases)
    return Figures(
        name=name,
        rows_used=len(priced_cases),
        rows_skipped=sum((skipped or {}).values()),
        skipped=skipped or {},
        step_time_rows=len(times),
        step_time_mape=_mean(np.abs(times)),
        step_time_median_ape=median_or_none(np.abs(times)),
        step_time_bias=_mean(times),
        spearman=_mean(np.array(orders)),
        top1_regret=median_or_none(np.array(regrets)),
        top1_regret_worst=max(regrets, default=None),
        sweeps=len(regrets),
        ranked_sweeps=len(orders),
        peak_memory_rows=len(memory),
        peak_memory_mape=_mean(np.abs(memory)),
        oom_f1=confusion.f1,
        oom_confusion=confusion,
        interval_rows=len(in_interval),
        interval_coverage=sum(in_interval) / len(in_interval) if in_interval else None,
    )


def sweeps(priced_cases: Sequence[PricedCase]) -> list[list[PricedCase]]:
    """Groups of rows that differ in their layout only; groups of a single row are left out."""
    groups = grouped(priced_cases, lambda item: item.case.sweep)
    return [group for group in groups.values() if len(group) > 1]


@frozen
class _Layout:
    """A layout of a sweep, with medians over its runs, which may differ in other things (a release, a dispatcher)."""

    published_seconds: float
    predicted_seconds: float
    fits: bool


def spearman(sweep: Sequence[PricedCase]) -> float | None:
    """Rank correlation of predicted and published step times of the layouts that ran; None if there are too few, or all are
    equal.
    """
    ran = _layouts(sweep)
    if len(ran) < MIN_RANKED_LAYOUTS:
        return None
    predicted = _ranks(np.array([layout.predicted_seconds for layout in ran]))
    published = _ranks(np.array([layout.published_seconds for layout in ran]))
    if predicted.std() == 0 or published.std() == 0:
        return None
    return float(np.corrcoef(predicted, published)[0, 1])


def regret(sweep: Sequence[PricedCase]) -> float | None:
    """Share by which the picked layout is slower than the best one, as published; None if too few layouts ran.

    The picked layout is the fastest by prediction among those predicted to fit. Layouts that did not run are skipped, as a user
    would skip them.
    """
    ran = _layouts(sweep)
    if len(ran) < MIN_RANKED_LAYOUTS:
        return None
    best = min(layout.published_seconds for layout in ran)
    picked = min([layout for layout in ran if layout.fits] or ran, key=lambda layout: layout.predicted_seconds)
    return picked.published_seconds / best - 1


def _layouts(sweep: Sequence[PricedCase]) -> list[_Layout]:
    """The layouts of the sweep that ran."""
    runs = grouped((item for item in sweep if item.case.step_seconds), lambda item: item.case.layout)
    return [
        _Layout(
            published_seconds=float(np.median([item.case.step_seconds for item in layout_runs if item.case.step_seconds])),
            predicted_seconds=float(np.median([item.step_seconds for item in layout_runs])),
            fits=any(item.fits for item in layout_runs),
        )
        for layout_runs in runs.values()
    ]


def _confusion(priced_cases: Sequence[PricedCase]) -> Confusion:
    return Confusion(
        hits=sum(item.case.oom is True and not item.fits for item in priced_cases),
        false_alarms=sum(item.case.oom is False and not item.fits for item in priced_cases),
        misses=sum(item.case.oom is True and item.fits for item in priced_cases),
        passes=sum(item.case.oom is False and item.fits for item in priced_cases),
    )


def _ranks(values: Floats) -> Floats:
    """Ranks of the values; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)
    means: Floats = last_ranks - (counts - 1) / 2
    return means[inverse]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def median_or_none(values: Floats) -> float | None:
    """The median; None without values."""
    return float(np.median(values)) if values.size else None
