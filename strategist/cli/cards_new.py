"""``strategist cards new`` and ``cards schema``: a template and the JSON Schema for authors of cards."""

import argparse

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, add_output


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """The commands and their options."""
    new = commands.add_parser(
        "new", help="write a template of a card", description="Write a template of a card, which has an effect already."
    )
    new.add_argument("id", metavar="ID", help="such as TP-101; with the id of a shipped card it replaces that card")
    new.add_argument("--module", default="", metavar="NAME", help="default: that of the cards with the same prefix of ids")
    new.add_argument("--title", default="", metavar="TEXT", help="title of the card, in a few words")
    add_output(new, "--out", default="my-cards", metavar="DIR", help="folder to write it into (default: my-cards)")
    new.set_defaults(command=new_card)
    schema = commands.add_parser("schema", help="print the JSON Schema of cards or flows", description="Print the JSON Schema.")
    schema.add_argument("kind", nargs="?", default="card", metavar="KIND", help="card or flow (default: card)")
    schema.set_defaults(command=show_schema)


def new_card(options: argparse.Namespace) -> int:
    """Writes the card and prints the next steps."""
    path = api.new_card(options.id, options.out, module=options.module, title=options.title, force=options.force)
    render.line(f"wrote {path}")
    render.line(f"next: edit it; strategist cards lint {path}; strategist plan --cards {options.out} ...")
    return 0


def show_schema(options: argparse.Namespace) -> int:
    """Prints the published schema."""
    render.show_json(api.schema(options.kind))
    return 0
