"""The report page of a study: self-contained, and consistent with its trials."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from browser import browser, needs_browser

from strategist.contract.goals import Goals
from strategist.contract.measurement import Evidence, Outcome
from strategist.contract.report import Influence, StudyReport
from strategist.errors import InputError
from strategist.report.page.predicted_vs_measured import measured
from strategist.report.page.setting_importance import influence
from strategist.report.page.study_page import study_page
from strategist.report.page.study_progress import front_figure, progress_figure
from strategist.report.page.trials import spent
from strategist.report.study_plot import study_plot
from tests.report.page.reader import Reader
from tests.report.page.reports import study

EVIL = "</pre><script>alert(1)</script>"


@pytest.fixture(scope="module")
def report() -> StudyReport:
    return study()


def test_the_page_is_valid_and_self_contained(report: StudyReport) -> None:
    text = study_page(report)
    Reader(text).check_self_contained()
    for name in ("Best so far", "Front", "Predicted and measured", "Influence", "Trials", "Spent", "Reproduce"):
        assert f"<h2>{name}</h2>" in text


def test_every_trial_is_drawn_and_listed(report: StudyReport) -> None:
    assert len(report.study.trials) == 4
    for picture in (progress_figure(report.study), front_figure(report.study)):
        assert picture.count("<circle") == 4
    assert measured(report).count("<circle") == 8
    page = Reader(study_page(report))
    assert len([attributes for tag, attributes in page.found if tag == "tr" and "data-item" in attributes]) == 4
    assert report.study.best_trial is not None


def test_the_best_so_far_never_gets_worse(report: StudyReport) -> None:
    (path,) = re.findall(r'<path d="M([^"]+)" class="front-line"', progress_figure(report.study))
    heights = [float(height) for height in re.findall(r" (-[0-9.]+)", path)]
    assert heights == sorted(heights, reverse=True)
    assert len(heights) > 1


def test_influence_shows_the_slowdown_of_each_value() -> None:
    found = [Influence(setting="tp", share=0.6, means=(("1", 0.2, 3), ("2", 0.5, 4)))]
    page = Reader(influence(found))
    assert "x2.50" in page.texts["td"]
    assert "1: 200 ms (3) · 2: 500 ms (4)" in page.texts["td"]


def test_a_study_without_a_successful_trial_has_no_plot(report: StudyReport) -> None:
    for goals in (report.study.goals, Goals()):
        with pytest.raises(InputError, match="holds no trial that ran successfully; plot it when there is one"):
            study_plot(replace(report.study, goals=goals, trials=()))
    assert study_plot(report.study).count("<circle") == len(report.study.trials)


def test_spent_device_hours_and_costs_add_up(report: StudyReport) -> None:
    assert sum(item.attempts for item in report.spent) == 4
    assert f">{sum(item.device_hours for item in report.spent):.3g}</td>" in spent(report)
    assert "$5" in spent(replace(report, price_per_device_hour=5 / sum(item.device_hours for item in report.spent)))


def test_the_page_shows_calibration_errors(report: StudyReport) -> None:
    assert report.learned is not None
    assert set(report.learned.step_errors) == set(report.learned.memory_errors)
    assert all(name in measured(report) for name in report.learned.step_errors)
    assert "Median errors" not in measured(replace(report, learned=None))


def test_hostile_names_and_messages_are_escaped(report: StudyReport) -> None:
    first, *others = report.study.trials
    lost = replace(first.measurement, outcome="crash", evidence=Evidence(message=EVIL))
    trials = (replace(first, outcome=None, state=EVIL, proposed_by=EVIL, measurement=lost), *others)
    hostile = replace(report.study, study=EVIL, trials=trials, request=replace(report.study.request, model=EVIL))
    text = study_page(replace(report, study=hostile, commands=((EVIL,),)))
    assert "<script>alert" not in text
    Reader(text).check_self_contained()


def test_only_a_trial_that_did_not_run_shows_its_message(report: StudyReport) -> None:
    first, *others = report.study.trials
    ran = replace(first, measurement=replace(first.measurement, evidence=Evidence(message="all is well")))
    lost = replace(first, measurement=replace(first.measurement, outcome=Outcome.OOM, evidence=Evidence(message="no memory\nleft")))
    shown = Reader(study_page(replace(report, study=replace(report.study, trials=(ran, lost, *others))))).texts["td"]
    assert "no memory left" in shown
    assert "all is well" not in shown


def test_a_study_without_trials_has_a_page(report: StudyReport) -> None:
    text = study_page(replace(report, study=replace(report.study, trials=(), best=None), influences=(), spent=(), learned=None))
    Reader(text).check_self_contained()
    assert "No trial has ended well yet." in text


@pytest.mark.full
@needs_browser
def test_the_page_fits_the_screen_of_a_phone(report: StudyReport, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(study_page(report), encoding="utf-8")
    with browser(tmp_path) as shown:
        shown.screen(390, 800)
        shown.open(page)
        assert shown.run("return document.documentElement.scrollWidth") == 390
        assert shown.run("return [...document.querySelectorAll('svg')].every(svg => svg.getAttribute('aria-label'))")
        assert shown.console() == []
