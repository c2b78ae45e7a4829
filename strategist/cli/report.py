"""``strategist report``: a plan or a study as one page that needs nothing else."""

import argparse
import json
from pathlib import Path

from strategist import api
from strategist.cli import deck, render
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.plan import Plan
from strategist.ledger import address


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "about", metavar="STUDY|PLAN",
        help="a study's folder or address; or a plan file, as strategist plan -o writes it, or what its --json prints",
    )  # fmt: skip
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="the page, FILE.html")
    deck.add(parser)
    parser.add_argument("--calibration", metavar="FILE", help="what tuning learned here: calibration.json of a study")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Writes the page and says where."""
    page = _study(options) if address.is_server(options.about) or Path(options.about).is_dir() else _plan(options)
    render.write(Path(options.out), page)
    render.line(f"report written to {options.out}")
    return 0


def _study(options: argparse.Namespace) -> str:
    from strategist.report.page.study_page import study_page

    return study_page(api.study_report(options.about))


def _plan(options: argparse.Namespace) -> str:
    from strategist.report.page.plan_page import plan_page

    about = _read(Path(options.about))
    return plan_page(api.report(about, cards=options.cards, without=options.without, calibration=options.calibration))


def _read(path: Path) -> Plan | Answer:
    """The plan or the answer in a file, whichever it says that it is."""
    try:
        kind = json.loads(path.read_bytes()).get("type")
    except (OSError, ValueError, AttributeError):  # said better where it is read as a plan
        kind = ""
    return codec.load(Answer, path) if kind == Answer.__name__ else codec.load(Plan, path)
