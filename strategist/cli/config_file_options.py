"""Options of commands that read another system's file."""

import argparse
from typing import Any

from strategist import api
from strategist.cli import deck_options, request_options
from strategist.cli.parser import Parser


def add(parser: Parser, *, several: bool = False) -> None:
    """Adds the file (or ``several``) and options for what it does not say; these take precedence over the file."""
    text = "a configuration, start script or plan, recognised by its content; FILE.py:NAME for one function of several"
    parser.add_argument("file", metavar="FILE", nargs="+" if several else None, help=text + (", or several" if several else ""))
    parser.add_argument("--format", default="", metavar="NAME", help="the file's format, if its content is ambiguous")
    group = parser.add_argument_group("values that the file lacks, or that differ from it")
    request_options.add_situation(group)
    deck_options.add(group)
    deck_options.add_calibration(group)
    deck_options.add_language(parser)


def given(options: argparse.Namespace) -> api.GivenValues:
    """Values of the options."""
    stated = request_options.given_request_fields(options)
    fields: dict[str, Any] = {name: stated.pop(name) for name in ("gpus", "model", "host_memory_bytes") if name in stated}
    return api.GivenValues(settings=stated.pop("fix", {}), workload=stated, **fields)


def deciding(options: argparse.Namespace) -> dict[str, Any]:
    """Values of the options for format, cards and calibration."""
    return {"format": options.format, **deck_options.arguments(options)}
