"""Error metrics of groups of priced rows."""

import pytest

from strategist.accuracy.case import case_of
from strategist.accuracy.error_metrics import PricedCase, figures, regret, spearman, sweeps
from tests.accuracy.published import made


def priced(published=None, predicted=1.0, *, fits=True, interval=None, memory=None, predicted_memory=1.0, **cells):
    case = case_of(made(step_time_s=published, peak_mem_gib=memory, **{"oom": 0, **cells}))
    return PricedCase(
        case=case, step_seconds=predicted, peak_memory_bytes=predicted_memory, fit_confidence=float(fits), interval=interval
    )


def sweep(*pairs):
    """Priced layouts from pairs of published and predicted seconds."""
    return [priced(published, predicted, micro_batch=2**at, global_batch=64) for at, (published, predicted) in enumerate(pairs)]


def test_errors_are_relative_to_the_published_value():
    found = figures("some", [priced(2.0, 3.0), priced(4.0, 3.0), priced(1.0, 1.1)])
    assert found.step_time_rows == 3
    assert found.step_time_mape == pytest.approx((0.5 + 0.25 + 0.1) / 3)
    assert found.step_time_median_ape == pytest.approx(0.25)
    assert found.step_time_bias == pytest.approx((0.5 - 0.25 + 0.1) / 3)


def test_metrics_without_rows_are_none():
    found = figures("some", [priced(None, 1.0)])
    assert (found.step_time_mape, found.spearman, found.top1_regret, found.peak_memory_mape, found.oom_f1) == (None,) * 5
    assert found.rows_used == 1


def test_memory_error_counts_rows_with_memory_only():
    found = figures("some", [priced(1.0, memory=1.0, predicted_memory=0.5 * 2**30), priced(1.0)])
    assert (found.peak_memory_rows, found.peak_memory_mape) == (1, pytest.approx(0.5))


def test_oom_confusion_matrix_and_f1():
    rows = [
        priced(oom=1, fits=False), priced(oom=1, fits=False), priced(oom=1, fits=True), priced(1.0, oom=0, fits=False),
        priced(1.0, oom=0), priced(1.0, oom=0), priced(1.0, oom=None, fits=False),
    ]  # fmt: skip
    found = figures("some", rows)
    confusion = found.oom_confusion
    assert (confusion.hits, confusion.false_alarms, confusion.misses, confusion.passes) == (2, 1, 1, 2)
    assert found.oom_f1 == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


def test_spearman_needs_three_rows_with_distinct_predictions():
    assert spearman(sweep((1.0, 10.0), (2.0, 20.0), (3.0, 30.0))) == pytest.approx(1.0)
    assert spearman(sweep((1.0, 30.0), (2.0, 20.0), (3.0, 10.0))) == pytest.approx(-1.0)
    assert spearman(sweep((1.0, 1.0), (2.0, 2.0))) is None
    assert spearman(sweep((1.0, 5.0), (2.0, 5.0), (3.0, 5.0))) is None


def test_regret_is_the_extra_step_time_of_the_best_predicted_layout():
    assert regret(sweep((1.0, 2.0), (1.5, 1.0), (3.0, 3.0))) == pytest.approx(0.5)
    assert regret(sweep((1.0, 1.0), (1.5, 2.0), (3.0, 3.0))) == 0
    unfit = [*sweep((1.0, 2.0), (3.0, 3.0)), priced(1.5, 1.0, fits=False, micro_batch=4, global_batch=64)]
    assert regret(unfit) == 0


def test_repeated_runs_of_a_layout_count_as_their_median():
    releases = [priced(seconds, 1.0, global_batch=64) for seconds in (1.0, 2.0, 3.0)]
    others = sweep((9.0, 9.0), (4.0, 2.0), (5.0, 3.0))[1:]
    assert regret([*releases, *others]) == 0
    assert regret(releases) is None


def test_regret_compares_rows_within_a_sweep_only():
    rows = [*sweep((1.0, 2.0), (1.5, 1.0), (3.0, 3.0)), priced(0.1, 9.0, seq_len=2048, global_batch=64)]
    assert [len(group) for group in sweeps(rows)] == [3]
    assert figures("some", rows).top1_regret == pytest.approx(0.5)


def test_interval_coverage_is_the_share_of_intervals_with_the_published_step():
    found = figures("some", [priced(1.0, interval=(0.9, 1.1)), priced(2.0, interval=(0.9, 1.1)), priced(1.0)])
    assert (found.interval_rows, found.interval_coverage) == (2, 0.5)
