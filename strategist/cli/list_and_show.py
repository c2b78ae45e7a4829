"""Commands ``list`` and ``show`` of named entries: a table of all, and one in detail."""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from strategist.cli import render
from strategist.cli.parser import Parser
from strategist.frozen import frozen

if TYPE_CHECKING:
    from rich.console import RenderableType


@frozen
class Kind:
    """A kind of entries.

    list_help, show_help, name_help: help texts of the commands and of their argument.
    names: names of all entries; ``find`` resolves one.
    table, page: reports of several entries and of one.
    """

    list_help: str
    show_help: str
    name_help: str
    names: Callable[[], Sequence[str]]
    find: Callable[[str], Any]
    table: "Callable[[Sequence[Any]], RenderableType]"
    page: "Callable[[Any], RenderableType]"


def add(parser: Parser, kind: Kind) -> None:
    """The commands ``list`` and ``show``."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listed = commands.add_parser("list", help=kind.list_help, description=f"List {kind.list_help}.")
    listed.set_defaults(command=lambda options: _list(kind, options))
    shown = commands.add_parser("show", help=kind.show_help, description=f"Show {kind.show_help}.")
    shown.add_argument("name", metavar="NAME", help=kind.name_help)
    shown.set_defaults(command=lambda options: _show(kind, options))
    for command in (listed, shown):
        command.add_argument("--json", action="store_true", help="print JSON")


def _list(kind: Kind, options: argparse.Namespace) -> int:
    entries = {name: kind.find(name) for name in kind.names()}
    render.show_json(entries) if options.json else render.show(kind.table([*entries.values()]))
    return 0


def _show(kind: Kind, options: argparse.Namespace) -> int:
    entry = kind.find(options.name)
    render.show_json(entry) if options.json else render.show(kind.page(entry))
    return 0
