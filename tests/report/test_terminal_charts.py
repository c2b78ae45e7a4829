"""Charts of reports on a terminal."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

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
from tests.report.page.reports import pipeline, streamed, study
from tests.report.samples import rendered


@pytest.mark.parametrize("made", [pipeline, streamed], ids=["simulated", "streamed"])
def test_charts_of_a_plan_fit_80_columns(made: Callable[[], PlanReport]) -> None:
    text = rendered(plan_charts(made(), tuple(SECTIONS)), 80)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    for title in ("Memory by rank", "Time of a step", "Mesh", "Timeline", "Candidates", "Funnel"):
        assert f"\n{title}" in text


def test_the_outcome_comes_first_and_charts_of_a_deep_pipeline_fit_a_screen() -> None:
    report = pipeline()
    assert report.timeline is not None
    deep = replace(
        report,
        ranks=tuple(replace(report.ranks[0], ranks=(rank,)) for rank in range(16)),
        timeline=replace(report.timeline, bubble_seconds=(1.0,) * 16),
    )
    lines = rendered(plan_charts(deep), 80).splitlines()
    assert lines[0].startswith("Fits: ")
    assert len(lines) <= 40
    assert [line.split()[1] for line in lines if line.startswith("  rank ")] == ["0", "3", "6", "9", "12", "15"]
    assert lines[-1].startswith("More: strategist report --explain, or --show mesh,candidates,funnel")
    assert tuple(SECTIONS) == report_command.SECTIONS


def test_the_timeline_has_one_letter_per_kind_of_work() -> None:
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


def test_the_plot_shows_the_best_candidate_and_the_front() -> None:
    space = pipeline().space
    assert space is not None
    lines = [text.plain for text in candidates(space)]
    grid = [line[10:] for line in lines[:LINES]]
    assert sum(line.count("*") for line in grid) == 1
    assert any("o" in line for line in grid)
    assert list(candidates(replace(space, seen=()))) == []


def test_terminal_tables_show_the_figures_of_the_page() -> None:
    report = pipeline()
    space = report.space
    assert space is not None
    text = rendered(funnel(space))
    assert re.search(rf"all candidates .* {space.candidates:,}\n", text)
    assert text.rstrip().endswith(f"{space.feasible:,}")
    assert [line.split()[0] for line in rendered(mesh(report.mesh)).splitlines()[1:]] == ["pp", "dp_shard", "tp"]
    assert len(rendered(ranks(report.ranks, report.plan.estimate.capacity_bytes)).splitlines()) == len(report.ranks) + 1


def test_charts_of_a_study_show_trials_and_influence() -> None:
    report = study()
    text = rendered(study_charts(report), 80)
    best = report.study.best_trial
    assert best is not None
    assert re.search(rf"\n +{best.number}\*\+ █{{16}} ", text)
    assert report.influences[0].setting in text
    trials = tuple(replace(best, number=number) for number in range(90, 91 + TRIALS))
    many = replace(report, study=replace(report.study, trials=trials, best=None, front=()))
    assert f"{TRIALS} of {TRIALS + 1}: the last ones" in rendered(study_charts(many), 80)
    none = replace(report, study=replace(report.study, trials=(), best=None), influences=())
    assert "Influence" not in rendered(study_charts(none))
