"""``strategist compare``: two plans side by side."""

import argparse

from strategist import api
from strategist.cli import deck_options, render
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.plan import Plan


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("first", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("second", metavar="OTHER", help="another plan file, of the same request or another")
    deck_options.add_language(parser)
    deck_options.add_cards(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the differences of the plans and their effects."""
    comparison = api.compare(codec.load(Plan, options.first), codec.load(Plan, options.second))
    if options.json:
        render.show_json(comparison)
        return 0
    from strategist.report.comparison import comparison_report

    render.show(comparison_report(api.in_language(comparison, options.lang, cards=options.cards)))
    return 0
