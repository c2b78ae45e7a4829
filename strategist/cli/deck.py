"""The options that say which cards are in force, shared by the commands that decide or explain."""

import argparse

CARDS = "a folder of cards, or an installed deck by name, beside the shipped cards; may be repeated, later ones win by id"


def add(parser: argparse._ActionsContainer) -> None:
    """Cards to add and cards to leave out."""
    add_cards(parser)
    parser.add_argument("--without", action="append", default=[], metavar="ID", help="a card to leave out; may be repeated")


def add_cards(parser: argparse._ActionsContainer) -> None:
    """Cards to add."""
    parser.add_argument("--cards", action="append", default=[], metavar="DIR|NAME", help=CARDS)
