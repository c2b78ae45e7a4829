"""The report page of a run: self-contained, and consistent with its measurement."""

from dataclasses import replace
from pathlib import Path

import pytest

from strategist import api
from strategist.contract import codec
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome
from strategist.contract.report import RunReport
from strategist.errors import FileError
from strategist.report.page.run_page import run_page
from tests.report.page.reader import Reader
from tests.report.page.reports import pipeline

STEP = '{"step": %d, "phase": "measure", "loss": %s, "seconds": 0.5, "memory_bytes": 1073741824}\n'


@pytest.fixture
def run(tmp_path: Path) -> RunReport:
    plan = pipeline().plan
    measured = Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OK, step_seconds=0.5, steps_measured=2, tokens_per_second=250_000.0,
        peak_memory_bytes=(2**30,), losses=(6.0, 5.0), profiled_step_seconds=0.5, time={"matmul": 0.3, "other": 0.2},
    )  # fmt: skip
    codec.save(plan, tmp_path / "plan.json")
    codec.save(measured, tmp_path / "measurement.json")
    (tmp_path / "progress.jsonl").write_text(STEP % (0, 6.0) + STEP % (1, 5.0) + '{"step": 2, "lo', encoding="ascii")
    return api.run_report(tmp_path)


def test_loss_throughput_and_memory_of_a_run_are_drawn(run: RunReport) -> None:
    assert [(step.step, step.loss) for step in run.steps] == [(0, 6.0), (1, 5.0)]  # a truncated step is left out
    page = run_page(run)
    Reader(page).check_self_contained()
    for name in ("Predicted and measured", "Loss", "Throughput", "Memory", "Time", "Reproduce"):
        assert f"<h2>{name}</h2>" in page
    assert '<strong class="badge good">ok</strong>' in page
    assert f"{run.plan.workload.tokens_per_step * 2:,.0f} tokens/s" in page


def test_a_failed_run_shows_its_outcome_and_message(run: RunReport) -> None:
    lost = Measurement(plan_id=run.plan.id, kind=Kind.REAL, outcome=Outcome.OOM, evidence=Evidence(message="<out of memory>"))
    page = run_page(replace(run, measurement=lost, steps=()))
    Reader(page).check_self_contained()
    assert '<strong class="badge bad">oom</strong>' in page
    assert "&lt;out of memory&gt;" in page


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        api.run_report(tmp_path)
