"""Reliability diagram: runs counted by their predicted probability of fitting into memory."""

from dataclasses import replace

import pytest

from strategist.accuracy.case import case_of
from strategist.accuracy.error_metrics import PricedCase
from strategist.accuracy.reliability import reliability
from tests.accuracy.published import made


def priced(confidence: float, *, oom: bool | None, file: str = "one") -> PricedCase:
    case = replace(case_of(made(file=file, step_time_s=1.0)), oom=oom)
    return PricedCase(case=case, step_seconds=1.0, peak_memory_bytes=1.0, fit_confidence=confidence)


def test_runs_are_counted_in_the_bin_of_their_fit_probability() -> None:
    runs = [priced(0.9, oom=False), priced(0.9, oom=False), priced(0.9, oom=True), priced(0.9, oom=True, file="two")]
    found = reliability([*runs, priced(1.0, oom=False), priced(0.05, oom=True), priced(0.9, oom=None)])
    by_low = {item.low: item for item in found}
    assert by_low[0.85].rows == 4
    assert by_low[0.85].ran == 0.5
    assert by_low[0.85].by_source == pytest.approx((2 / 3 + 0) / 2)
    assert (by_low[0.95].rows, by_low[0.95].ran) == (1, 1.0)
    assert (by_low[0.0].ran, by_low[0.5].ran) == (0.0, None)
