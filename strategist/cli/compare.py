"""``strategist compare``: two plans side by side."""

import argparse

from strategist import api
from strategist.cli import deck_options, render, sections
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.plan import Plan

SECTIONS = ("settings", "figures", "memory", "time", "reasons")
"""Sections of a comparison (strategist/report/comparison.py)."""


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("first", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("second", metavar="OTHER", help="another plan file, of the same request or another")
    deck_options.add_language(parser)
    deck_options.add_cards(parser)
    sections.add(parser, SECTIONS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the differences of the plans and their effects."""
    names = sections.requested_sections(options, SECTIONS)
    comparison = api.compare(codec.load(Plan, options.first), codec.load(Plan, options.second))
    if options.json:
        render.show_json(comparison)
        return 0
    from strategist.report.comparison import comparison_report

    render.show(comparison_report(api.in_language(comparison, options.lang, cards=options.cards), names))
    return 0
