"""``strategist accuracy``: predicted against published measurements."""

import argparse

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, add_output, positive
from strategist.files import outputs
from strategist.report.page.html import PAGE_MARK


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--data", metavar="PATH", help="a CSV file of published runs, or a folder of them (default: the shipped ones)"
    )
    parser.add_argument("--source", default="", metavar="S", help="only files whose names contain S")
    parser.add_argument("--worst", type=positive("--worst"), default=0, metavar="N", help="list the N rows that are missed most")
    parser.add_argument("--json", action="store_true", help="print JSON, errors as fractions")
    add_output(parser, "--html", help="write a page with scatter plots here")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the figures, and writes the page if requested."""
    if options.html:
        outputs.check(options.html, marker=PAGE_MARK, force=options.force)
    result = api.accuracy(options.data, source=options.source)
    if options.html:
        from strategist.report.accuracy_page import accuracy_page

        outputs.write(options.html, accuracy_page(result), marker=PAGE_MARK, force=options.force)
    from strategist.report.accuracy import accuracy_document, accuracy_report

    if options.json:
        render.show_json(accuracy_document(result, options.worst))
    else:
        render.show(accuracy_report(result, options.worst))
    return 0
