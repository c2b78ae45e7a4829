"""``strategist cards``: list, create, check and test cards."""

import argparse

from strategist import api
from strategist.cli import cards_check, cards_evidence, cards_new, cards_reference, cards_test, deck_options, render
from strategist.cli.parser import Parser


def add(parser: Parser) -> None:
    """The commands of the group and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    listing = commands.add_parser("list", help="all active cards", description="All active cards.")
    listing.set_defaults(command=list_cards)
    show = commands.add_parser("show", help="one card in full", description="One card in full.")
    show.add_argument("id", metavar="ID", help="of a card or a flow, such as FSDP-001")
    show.set_defaults(command=show_card)
    for command in (listing, show):
        deck_options.add_cards(command)
        deck_options.add_language(command)
    cards_check.add(commands)
    cards_evidence.add(commands)
    cards_test.add(commands)
    cards_new.add(commands)
    cards_reference.add(commands)
    for command in (listing, show):
        command.add_argument("--json", action="store_true", help="print JSON")


def list_cards(options: argparse.Namespace) -> int:
    """Prints a line per card."""
    deck = api.load_cards(options.cards)
    if options.json:
        render.show_json(list(api.listed_cards(deck)))
        return 0
    from strategist.report.deck import deck_report

    render.show(deck_report(api.in_language(deck, options.lang), api.not_as_shipped(deck)))
    return 0


def show_card(options: argparse.Namespace) -> int:
    """Prints a card or a flow; as JSON, its content as in the file."""
    deck = api.in_language(api.load_cards(options.cards), options.lang)
    flow = next((flow for flow in deck.flows if flow.id == options.id), None)
    item = flow or deck.card(options.id)
    if options.json:
        render.show_json(item.document.data)
        return 0
    from strategist.report.deck import card_report, flow_report

    render.show(flow_report(flow) if flow else card_report(deck.card(options.id)))
    return 0
