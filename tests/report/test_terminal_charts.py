"""The pictures of reports in a terminal."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tuner.studies import tuned

from strategist import api
from strategist.cli import report as report_command
from strategist.contract.report import PlanReport, Span, Timeline
from strategist.report.terminal_charts import (
    CELLS,
    LINES,
    SECTIONS,
    TRIALS,
    candidates,
    funnel,
    mesh,
    plan_charts,
    ranks,
    study_charts,
    timeline,
)
from tests.report.page.reports import pipeline, streamed
from tests.report.samples import look


@pytest.mark.parametrize("made", [pipeline, streamed], ids=["simulated", "streamed"])
def test_everything_stands_in_80_columns(made: Callable[[], PlanReport]) -> None:
    text = look(plan_charts(made(), tuple(SECTIONS)), 80)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    for title in ("Memory by rank", "Time of a step", "Mesh", "Timeline", "Candidates", "Funnel"):
        assert f"\n{title}" in text


def test_the_outcome_comes_first_and_a_deep_pipeline_fits_a_screen() -> None:
    report = pipeline()
    assert report.timeline is not None
    deep = replace(
        report,
        ranks=tuple(replace(report.ranks[0], ranks=(rank,)) for rank in range(16)),
        timeline=replace(report.timeline, bubble_seconds=(1.0,) * 16),
    )
    lines = look(plan_charts(deep), 80).splitlines()
    assert lines[0].startswith("Fits: ")
    assert len(lines) <= 40
    assert [line.split()[1] for line in lines if line.startswith("  rank ")] == ["0", "3", "6", "9", "12", "15"]
    assert lines[-1].startswith("More: strategist report --explain, or --show mesh,candidates,funnel")
    assert tuple(SECTIONS) == report_command.SECTIONS


def test_a_line_of_the_timeline_is_what_the_rank_does() -> None:
    spans = (
        Span(rank=0, work="forward", start_seconds=0.0, end_seconds=1.0, stage=0, micro_batch=0),
        Span(rank=0, work="backward", start_seconds=2.0, end_seconds=4.0, stage=0, micro_batch=0),
        Span(rank=0, work="optimizer", start_seconds=4.0, end_seconds=5.0),
    )
    simulated_step = Timeline(schedule="1f1b", micro_batches=1, step_seconds=5.0, spans=spans, bubble_seconds=(1.0,))
    line, legend = (text.plain for text in timeline(simulated_step))
    fifth = CELLS // 5
    assert line == "rank 0   " + "F" * fifth + "·" * fifth + "B" * 2 * fifth + "+" * fifth
    assert legend == "F forward, B backward, + what follows the last one, · waiting"


def test_the_plot_shows_the_first_and_the_front() -> None:
    space = pipeline().space
    assert space is not None
    lines = [text.plain for text in candidates(space)]
    grid = [line[10:] for line in lines[:LINES]]
    assert sum(line.count("*") for line in grid) == 1
    assert any("o" in line for line in grid)
    assert list(candidates(replace(space, seen=()))) == []


def test_tables_say_what_the_page_draws() -> None:
    report = pipeline()
    space = report.space
    assert space is not None
    text = look(funnel(space))
    assert re.search(rf"all candidates .* {space.candidates:,}\n", text)
    assert text.rstrip().endswith(f"{space.feasible:,}")
    assert [line.split()[0] for line in look(mesh(report.mesh)).splitlines()[1:]] == ["pp", "dp_shard", "tp"]
    assert len(look(ranks(report.ranks, report.plan.estimate.capacity_bytes)).splitlines()) == len(report.ranks) + 1


def test_a_study_shows_its_trials_and_what_had_influence(tmp_path: Path) -> None:
    report = api.study_report(tuned(tmp_path / "study", 4))
    text = look(study_charts(report), 80)
    (best,) = (trial for trial in report.trials if trial.best)
    assert re.search(rf"\n +{best.number}\* █{{16}} ", text)
    assert report.influences[0].setting in text
    (slow,) = [trial for trial in report.trials if not trial.best and not trial.front][:1]
    many = replace(
        report, trials=(slow, *(replace(trial, number=number) for number, trial in enumerate([slow] * TRIALS, start=90)))
    )
    assert f"{TRIALS} of {TRIALS + 1}: the last ones" in look(study_charts(many), 80)
    assert "Influence" not in look(study_charts(replace(report, trials=(), influences=())))
