"""``strategist schema``: the JSON Schema of each command's output."""

import argparse

from strategist.cli import render
from strategist.cli.parser import Parser, add_output


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a document; without one all are listed")
    add_output(parser, "-o", "--output", metavar="DIR", help="write the schemas of all documents here")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints one schema, or a line per schema, or writes all."""
    from strategist.api.documents import DOCUMENTS, schema_of, write_schemas

    if options.output:
        for path in write_schemas(options.output, force=options.force):
            render.line(str(path))
    elif options.name:
        render.show_json(schema_of(options.name))
    else:
        for name, (_, origin) in DOCUMENTS.items():
            render.line(f"{name:12} {origin}")
    return 0
