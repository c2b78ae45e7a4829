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
    parser.add_argument("--calibration", metavar="FILE", help="what tuning learned here: calibration.json of a study")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints its path, or prints the pictures."""
    found = api.report_of(options.about, cards=options.cards, without=options.without, calibration=options.calibration)
    if isinstance(found, PlanReport):
        found = api.in_language(found, options.lang, cards=options.cards)
    shown = sections.requested_sections(options, SECTIONS)
    if shown and (options.out or not isinstance(found, PlanReport)):
        law = "choose what a terminal shows of a plan"
        raise InputError("--show and --explain", law, "leave them out: the page and other reports are whole")
    if not options.out:
        render.show(_pictures(found, shown))
        return 0
    outputs.write(options.out, _page(found, options.lang), marker=PAGE_MARK, force=options.force)
    render.line(f"report written to {options.out}")
    return 0


def _page(found: PlanReport | RunReport | StudyReport, language: str) -> str:
    if isinstance(found, RunReport):
        from strategist.report.page.run_page import run_page

        return run_page(found)
    if isinstance(found, StudyReport):
        from strategist.report.page.study_page import study_page

        return study_page(found)
    from strategist.report.page.plan_page import plan_page

    return plan_page(found, language)


def _pictures(found: PlanReport | RunReport | StudyReport, shown: Collection[str]) -> "RenderableType":
    from strategist.report.terminal_charts import plan_charts, study_charts
    from strategist.report.trial import trial_report

    if isinstance(found, RunReport):
        return trial_report(found.plan, found.measurement)
    return study_charts(found) if isinstance(found, StudyReport) else plan_charts(found, shown)
