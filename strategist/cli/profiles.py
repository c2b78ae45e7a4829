"""``strategist profiles``: known models, devices, back ends and formats."""

import argparse

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the names."""
    known = api.profiles()
    if options.json:
        render.show_json(dict(known))
        return 0
    from strategist.report.deck import profiles_report

    render.show(profiles_report(known))
    return 0
