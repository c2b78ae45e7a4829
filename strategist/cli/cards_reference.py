"""``strategist cards reference``: pages on every card, setting, name and code."""

import argparse

from strategist import api
from strategist.cli import deck_options, render
from strategist.cli.parser import Parser, add_output


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """The command and its options."""
    text = "write pages on every card, setting, name and code of lint"
    reference = commands.add_parser("reference", help=text, description=text[0].upper() + text[1:] + ", in Markdown.")
    add_output(reference, "folder", nargs="?", default="reference", metavar="DIR", help="where to write (default: reference)")
    deck_options.add_cards(reference)
    reference.set_defaults(command=write)


def write(options: argparse.Namespace) -> int:
    """Writes the pages and prints their number."""
    written, removed = api.write_reference(options.folder, cards=options.cards, force=options.force)
    render.line(f"wrote {written} pages into {options.folder}" + (f", removed {removed}" if removed else ""))
    return 0
