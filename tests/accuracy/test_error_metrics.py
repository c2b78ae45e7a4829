"""Figures of groups of rows."""

import pytest

from strategist.accuracy.case import case_of
from strategist.accuracy.error_metrics import PricedCase, figures, regret, spearman, sweeps
from tests.accuracy.published import made


def judged(published=None, predicted=1.0, *, fits=True, interval=None, memory=None, predicted_memory=1.0, **cells):
    case = case_of(made(step_time_s=published, peak_mem_gib=memory, **{"oom": 0, **cells}))
    return PricedCase(
        case=case, step_seconds=predicted, peak_memory_bytes=predicted_memory, fit_confidence=float(fits), interval=interval
    )


def sweep(*pairs):
    """Layouts with published and predicted seconds."""
    return [judged(published, predicted, micro_batch=2**at, global_batch=64) for at, (published, predicted) in enumerate(pairs)]


def test_errors_are_fractions_of_what_was_published():
    found = figures("some", [judged(2.0, 3.0), judged(4.0, 3.0), judged(1.0, 1.1)])
    assert found.step_time_rows == 3
    assert found.step_time_mape == pytest.approx((0.5 + 0.25 + 0.1) / 3)
    assert found.step_time_median_ape == pytest.approx(0.25)
    assert found.step_time_bias == pytest.approx((0.5 - 0.25 + 0.1) / 3)


def test_a_figure_that_no_row_has_is_none():
    found = figures("some", [judged(None, 1.0)])
    assert (found.step_time_mape, found.spearman, found.top1_regret, found.peak_memory_mape, found.oom_f1) == (None,) * 5
    assert found.rows_used == 1


def test_memory_errors():
    found = figures("some", [judged(1.0, memory=1.0, predicted_memory=0.5 * 2**30), judged(1.0)])
    assert (found.peak_memory_rows, found.peak_memory_mape) == (1, pytest.approx(0.5))


def test_verdicts_on_memory_and_their_f1():
    rows = [
        judged(oom=1, fits=False), judged(oom=1, fits=False), judged(oom=1, fits=True), judged(1.0, oom=0, fits=False),
        judged(1.0, oom=0), judged(1.0, oom=0), judged(1.0, oom=None, fits=False),
    ]  # fmt: skip
    found = figures("some", rows)
    confusion = found.oom_confusion
    assert (confusion.hits, confusion.false_alarms, confusion.misses, confusion.passes) == (2, 1, 1, 2)
    assert found.oom_f1 == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


def test_rank_correlation_of_a_sweep():
    assert spearman(sweep((1.0, 10.0), (2.0, 20.0), (3.0, 30.0))) == pytest.approx(1.0)
    assert spearman(sweep((1.0, 30.0), (2.0, 20.0), (3.0, 10.0))) == pytest.approx(-1.0)
    assert spearman(sweep((1.0, 1.0), (2.0, 2.0))) is None
    assert spearman(sweep((1.0, 5.0), (2.0, 5.0), (3.0, 5.0))) is None


def test_regret_is_what_the_picked_layout_takes_longer():
    assert regret(sweep((1.0, 2.0), (1.5, 1.0), (3.0, 3.0))) == pytest.approx(0.5)
    assert regret(sweep((1.0, 1.0), (1.5, 2.0), (3.0, 3.0))) == 0
    unfit = [*sweep((1.0, 2.0), (3.0, 3.0)), judged(1.5, 1.0, fits=False, micro_batch=4, global_batch=64)]
    assert regret(unfit) == 0


def test_runs_of_one_layout_count_as_their_median():
    releases = [judged(seconds, 1.0, global_batch=64) for seconds in (1.0, 2.0, 3.0)]
    others = sweep((9.0, 9.0), (4.0, 2.0), (5.0, 3.0))[1:]
    assert regret([*releases, *others]) == 0
    assert regret(releases) is None


def test_only_rows_of_one_sweep_are_compared():
    rows = [*sweep((1.0, 2.0), (1.5, 1.0), (3.0, 3.0)), judged(0.1, 9.0, seq_len=2048, global_batch=64)]
    assert [len(group) for group in sweeps(rows)] == [3]
    assert figures("some", rows).top1_regret == pytest.approx(0.5)


def test_coverage_counts_intervals_that_hold_the_published_step():
    found = figures("some", [judged(1.0, interval=(0.9, 1.1)), judged(2.0, interval=(0.9, 1.1)), judged(1.0)])
    assert (found.interval_rows, found.interval_coverage) == (2, 0.5)
