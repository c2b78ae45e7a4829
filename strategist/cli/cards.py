"""``strategist cards``: list, show and lint cards."""

import argparse

from strategist import api
from strategist.cli import cards_test, render
from strategist.cli.parser import Parser
from strategist.diagnostic import Level

UNSOUND = 1


def add(parser: Parser) -> None:
    """The commands of the group and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    listing = commands.add_parser("list", help="all cards in force", description="All cards in force.")
    listing.set_defaults(command=list_cards)
    show = commands.add_parser("show", help="one card in full", description="One card in full.")
    show.add_argument("id", metavar="ID", help="such as FSDP-001")
    show.set_defaults(command=show_card)
    for command in (listing, show):
        command.add_argument(
            "--cards", action="append", default=[], metavar="DIR", help="a folder of cards beside the shipped ones"
        )
    check = commands.add_parser("lint", help="find what is wrong with cards", description="Find what is wrong with cards.")
    check.add_argument("path", nargs="*", metavar="PATH", help="card files and folders (default: the shipped cards)")
    check.set_defaults(command=lint_cards)
    cards_test.add(commands)
    for command in (listing, show, check):
        command.add_argument("--json", action="store_true", help="print JSON")


def list_cards(options: argparse.Namespace) -> int:
    """Prints a line for each card."""
    cards = api.load_cards(options.cards).cards
    if options.json:
        render.show_json(
            [{"id": card.id, "module": card.module, "status": card.status, "title": str(card.title)} for card in cards]
        )
        return 0
    from strategist.report.deck import cards_report

    render.show(cards_report(cards))
    return 0


def show_card(options: argparse.Namespace) -> int:
    """Prints a card; as JSON, exactly what its file says."""
    card = api.load_cards(options.cards).card(options.id)
    if options.json:
        render.show_json(card.document.data)
        return 0
    from strategist.report.deck import card_report

    render.show(card_report(card))
    return 0


def lint_cards(options: argparse.Namespace) -> int:
    """Prints the findings; 1 where one of them is an error."""
    findings = api.lint(options.path)
    if options.json:
        render.show_json([vars(finding) for finding in findings])
    else:
        for finding in findings:
            render.line(str(finding))
        errors = sum(finding.level is Level.ERROR for finding in findings)
        render.line(f"errors: {errors}, other findings: {len(findings) - errors}" if findings else "no findings")
    return UNSOUND if any(finding.level is Level.ERROR for finding in findings) else 0
