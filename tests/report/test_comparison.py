"""Report of two plans side by side."""

from dataclasses import replace

from strategist.planning.compare import compared
from strategist.report.comparison import comparison_report
from tests.report.samples import PLAN, rendered


def test_no_prediction_is_certain() -> None:
    sure = replace(PLAN, estimate=replace(PLAN.estimate, fit_confidence=1.0))
    [line] = [line.split() for line in rendered(comparison_report(compared(PLAN, sure))).splitlines() if "fits with" in line]
    assert line[3] == "99%"
