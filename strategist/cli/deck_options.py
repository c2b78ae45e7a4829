"""Options that select the cards, shared by the commands that decide or explain."""

import argparse
from typing import Any

from strategist import api

CARDS = "a folder of cards, or an installed deck by name, added to the shipped cards; repeatable, later cards replace equal ids"


def add(parser: argparse._ActionsContainer) -> None:
    """Cards to add and cards to leave out."""
    add_cards(parser)
    parser.add_argument("--without", action="append", default=[], metavar="ID", help="a card to leave out; may be repeated")


def add_calibration(parser: argparse._ActionsContainer) -> None:
    """The calibration of a study, in place of the shipped one."""
    parser.add_argument("--calibration", metavar="FILE", help="factors fitted to trials: calibration.json of a study")


def arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Cards, omitted cards and calibration, as arguments of functions of the API."""
    return {"cards": options.cards, "without": options.without, "calibration": options.calibration}


def words(options: argparse.Namespace) -> list[str]:
    """Options of cards and calibration, as words of a command."""
    calibration = ["--calibration", options.calibration] if options.calibration else []
    return [*(word for deck in options.cards for word in ("--cards", deck)), *calibration]


def add_language(parser: argparse._ActionsContainer) -> None:
    """The language of the cards' texts."""
    help_text = "language of the cards' texts, en or zh (default en); JSON, plan files and all other text stay English"
    parser.add_argument("--lang", choices=api.LANGUAGES, default=api.ENGLISH, metavar="LANG", help=help_text)


def add_cards(parser: argparse._ActionsContainer) -> None:
    """Cards to add."""
    parser.add_argument("--cards", action="append", default=[], metavar="DIR|NAME", help=CARDS)
