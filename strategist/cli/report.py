"""``strategist report``: a plan, a run or a study in pictures, as one page that needs nothing else or in a terminal."""

import argparse
import json
from pathlib import Path

from strategist import api
from strategist.cli import deck_options, render
from strategist.cli.parser import Parser, add_output
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.plan import Plan
from strategist.ledger import address
from strategist.report.page.html import PAGE_MARK


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "about", metavar="STUDY|RUN|PLAN",
        help="a study's folder or address; a run's folder; or a plan file, as strategist plan -o writes it, or plan --json prints",
    )  # fmt: skip
    add_output(parser, "-o", "--out", help="the page, FILE.html (default: the main pictures, printed)")
    deck_options.add(parser)
    deck_options.add_language(parser)
    parser.add_argument("--calibration", metavar="FILE", help="what tuning learned here: calibration.json of a study")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Writes the page and says where, or prints the pictures."""
    if not address.is_server(options.about) and (Path(options.about) / "measurement.json").is_file():
        return _run(options)
    whole = address.is_server(options.about) or Path(options.about).is_dir()
    return _study(options) if whole else _plan(options)


def _run(options: argparse.Namespace) -> int:
    found = api.run_report(options.about)
    if options.out:
        from strategist.report.page.run_page import run_page

        return _write(options, run_page(found))
    from strategist.report.trial import trial_report

    render.show(trial_report(found.plan, found.measurement))
    return 0


def _study(options: argparse.Namespace) -> int:
    found = api.study_report(options.about)
    if options.out:
        from strategist.report.page.study_page import study_page

        return _write(options, study_page(found))
    from strategist.report.terminal_charts import study_charts

    render.show(study_charts(found))
    return 0


def _plan(options: argparse.Namespace) -> int:
    about = _read(Path(options.about))
    found = api.report(about, cards=options.cards, without=options.without, calibration=options.calibration)
    found = api.in_language(found, options.lang, cards=options.cards)
    if options.out:
        from strategist.report.page.plan_page import plan_page

        return _write(options, plan_page(found, options.lang))
    from strategist.report.terminal_charts import plan_charts

    render.show(plan_charts(found))
    return 0


def _write(options: argparse.Namespace, page: str) -> int:
    render.write(options.out, page, own=PAGE_MARK, force=options.force)
    render.line(f"report written to {options.out}")
    return 0


def _read(path: Path) -> Plan | Answer:
    """The plan or the answer in a file, whichever it says that it is."""
    try:
        kind = json.loads(path.read_bytes()).get("type")
    except (OSError, ValueError, RecursionError, AttributeError):  # said better where it is read as a plan
        kind = ""
    return codec.load(Answer, path) if kind == Answer.__name__ else codec.load(Plan, path)
