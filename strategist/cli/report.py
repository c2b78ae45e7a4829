"""``strategist report``: a plan, a run or a study in pictures, as a self-contained page or in a terminal."""

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import deck_options, render, sections
from strategist.cli.parser import Parser, add_output
from strategist.contract.report import PlanReport, RunReport, StudyReport
from strategist.errors import InputError
from strategist.files import outputs
from strategist.report.page.html import PAGE_MARK

if TYPE_CHECKING:
    from rich.console import RenderableType


SECTIONS = ("memory", "time", "mesh", "timeline", "candidates", "funnel")
"""The parts of a plan's report in a terminal."""


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "about", metavar="STUDY|RUN|PLAN",
        help="a study's folder or address; a run's folder; or a plan file, as strategist plan -o writes it, or plan --json prints",
    )  # fmt: skip
    add_output(parser, "-o", "--out", help="the page, FILE.html (default: the main pictures, printed)")
    sections.add(parser, SECTIONS)
    deck_options.add(parser)
    deck_options.add_language(parser)
    deck_options.add_calibration(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints its path, or prints the pictures."""
    report = api.report_of(options.about, **deck_options.arguments(options))
    if isinstance(report, PlanReport):
        report = api.in_language(report, options.lang, cards=options.cards)
    section_names = sections.requested_sections(options, SECTIONS)
    if section_names and (options.out or not isinstance(report, PlanReport)):
        law = "choose what a terminal shows of a plan"
        raise InputError("--show and --explain", law, "leave them out: the page and other reports are whole")
    if not options.out:
        render.show(_pictures(report, section_names))
        return 0
    outputs.write(options.out, _page(report, options.lang), marker=PAGE_MARK, force=options.force)
    render.line(f"report written to {options.out}")
    return 0


def _page(report: PlanReport | RunReport | StudyReport, language: str) -> str:
    if isinstance(report, RunReport):
        from strategist.report.page.run_page import run_page

        return run_page(report)
    if isinstance(report, StudyReport):
        from strategist.report.page.study_page import study_page

        return study_page(report)
    from strategist.report.page.plan_page import plan_page

    return plan_page(report, language)


def _pictures(report: PlanReport | RunReport | StudyReport, section_names: Collection[str]) -> "RenderableType":
    from strategist.report.terminal_charts import plan_charts, study_charts
    from strategist.report.trial import trial_report

    if isinstance(report, RunReport):
        return trial_report(report.plan, report.measurement)
    return study_charts(report) if isinstance(report, StudyReport) else plan_charts(report, section_names)
