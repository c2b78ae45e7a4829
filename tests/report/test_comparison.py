"""Report of two plans side by side."""

from dataclasses import replace

import pytest

from strategist.cli import compare
from strategist.contract.workload import Workload
from strategist.planning.compare import compared
from strategist.report.comparison import SECTIONS, comparison_report
from tests.report.samples import OTHER, PLAN, rendered

FASTER = replace(PLAN.estimate, step_seconds=40.0, time=replace(PLAN.estimate.time, offload=4.0, dp_communication=4.0))
UNLIKE = replace(OTHER, estimate=FASTER, workload=Workload(seq_len=128, global_batch=8, optimizer="muon"))
"""A plan that differs from the sample in inputs, settings, figures and reasons."""


def test_a_screen_shows_what_differs_most() -> None:
    lines = rendered(comparison_report(compared(PLAN, UNLIKE))).splitlines()
    assert len(lines) <= 30
    assert any("6 of 21: --show settings" in line for line in lines)
    step = next(number for number, line in enumerate(lines) if "step time" in line)
    assert lines[step + 1].split() == ["offload", "12", "s", "4", "s", "0.33"]
    assert not any("matmul" in line for line in lines)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_shown_alone(name: str) -> None:
    headings = {"settings": "Settings that", "figures": "Predicted", "memory": "Memory by", "time": "Time by", "reasons": "Reasons"}
    text = rendered(comparison_report(compared(PLAN, replace(UNLIKE, reasons=())), (name,)))
    assert [heading for heading in headings.values() if heading in text] == [headings[name]]


def test_the_option_lists_the_sections() -> None:
    assert tuple(SECTIONS) == compare.SECTIONS


def test_no_prediction_is_certain() -> None:
    sure = replace(PLAN, estimate=replace(PLAN.estimate, fit_confidence=1.0))
    text = rendered(comparison_report(compared(PLAN, sure), ("figures",)))
    [line] = [line.split() for line in text.splitlines() if "fits with" in line]
    assert line[3] == "99%"
