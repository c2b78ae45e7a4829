"""``strategist watch``: follows a study that other processes tune, live on a terminal, else as a line per trial."""

import argparse
import json
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, whole

if TYPE_CHECKING:
    from strategist.contract.study import Study, StudyTrial

STUDY = "folder of the study, or postgresql://USER@HOST/DATABASE?study=NAME"


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("study", metavar="STUDY", help=STUDY)
    parser.add_argument(
        "--idle", type=whole("--idle"), metavar="SECONDS", help="end when no trial has run for this long (default 30)"
    )
    parser.add_argument("--lines", action="store_true", help="print a line for each finished trial on a terminal, too")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a trial")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Shows the study until it ends."""
    live = render.has_screen() and not (options.lines or options.json)
    study = _board(options) if live else _lines(options)
    if not options.json:
        render.print_note(f"{study.status.value}: {len(study.finished)} of {len(study.trials)} trials finished")
    return 0


def _board(options: argparse.Namespace) -> "Study":
    """Shows the live view; returns the study when it has ended."""
    from strategist.cli.watch_view import StudyView
    from strategist.report.study import study_report

    view = StudyView()
    view.take(api.study(options.study), ())  # shows something at once
    with render.live(view):
        study = api.watch_study(options.study, view.take, options.idle)
    render.show(study_report(study))
    return study


def _lines(options: argparse.Namespace) -> "Study":
    from strategist.report.study import trial_line

    def print_trials(study: "Study", finished: "tuple[StudyTrial, ...]") -> None:
        for trial in finished:
            render.line(json.dumps(api.trial_row(trial)) if options.json else trial_line(trial, study.best), now=True)

    return api.watch_study(options.study, print_trials, options.idle)
