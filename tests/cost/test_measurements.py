"""Our own shipped measurements: readable, and a calibration fitted to some of them improves predictions of the others."""

import statistics
from collections.abc import Callable, Sequence

import pytest

from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.cost.fit import fit
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.paths import data_dir
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.profiles.stacks import stack_of_plan

FILES = sorted((data_dir("profiles") / "measurements").glob("*.jsonl"))


def error(record: Record, calibration: Calibration) -> tuple[float, float]:
    """Relative errors of step time and peak memory."""
    plan, measured = record.plan, record.measurement
    columns = table([row_of(plan.candidate, plan.accumulation)])
    found = price(plan.model, plan.cluster, plan.workload, columns, calibration, stack_of_plan(plan)).estimate(0)
    assert measured.step_seconds is not None
    return (
        abs(found.step_seconds / measured.step_seconds - 1),
        abs(found.memory.allocated / max(measured.peak_memory_bytes) - 1),
    )


def median_errors(records: Sequence[Record], calibration_of: Callable[[int], Calibration]) -> tuple[float, float]:
    steps, peaks = zip(*(error(record, calibration_of(index)) for index, record in enumerate(records)), strict=True)
    return statistics.median(steps), statistics.median(peaks)


def test_every_shipped_line_is_a_record():
    assert FILES
    for path in FILES:
        found = history.read(path)
        assert found.records
        assert not found.findings


@pytest.mark.full
def test_leave_one_out_calibration_reduces_errors():
    for path in FILES:
        records = [record for record in history.read(path).records if record.measurement.step_seconds]
        step_before, peak_before = median_errors(records, lambda _: NEUTRAL)
        step_left_out, peak_left_out = median_errors(records, lambda i, r=records: fit([*r[:i], *r[i + 1 :]]))
        assert step_left_out < max(step_before / 2, 0.1)
        assert step_left_out < 0.3
        assert peak_left_out < max(peak_before, 0.1)
