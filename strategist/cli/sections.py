"""``--explain`` and ``--show SECTIONS``: sections of a report beyond its screen."""

import argparse
from collections.abc import Sequence

from strategist.cli.parser import Parser
from strategist.errors import not_among


def add(parser: Parser, names: Sequence[str]) -> None:
    """The options, for a report with these parts."""
    parser.add_argument("--explain", action="store_true", help="print the whole report, with every part")
    listed = ", ".join(names)
    parser.add_argument("--show", action="append", default=[], metavar="SECTIONS", help=f"print these parts of it only: {listed}")


def requested_sections(options: argparse.Namespace, names: Sequence[str]) -> tuple[str, ...]:
    """Requested sections: those named, separated by commas; all with ``--explain``; empty for the screen.

    Raises:
        InputError: a section is unknown.
    """
    requested = tuple(name.strip() for text in options.show for name in text.split(","))
    for name in requested:
        if name not in names:
            raise not_among(f"--show {name}", name, names)
    return requested or (tuple(names) if options.explain else ())
