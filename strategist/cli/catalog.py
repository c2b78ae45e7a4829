"""Commands over named entries: a table of all, or one in detail."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strategist.cli import render
from strategist.cli.parser import Parser

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of entries.

    all, one, name: words for the help.
    names: names of all entries; ``find`` resolves one.
    table, page: reports of several entries and of one.
    """

    all: str
    one: str
    name: str
    names: Callable[[], Sequence[str]]
    find: Callable[[str], Any]
    table: "Callable[[Sequence[Any]], RenderableType]"
    page: "Callable[[Any], RenderableType]"


def add(parser: Parser, kind: Kind) -> None:
    """The commands ``list`` and ``show``."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listed = commands.add_parser("list", help=kind.all, description=f"List {kind.all}.")
    listed.set_defaults(command=lambda options: _list(kind, options))
    shown = commands.add_parser("show", help=kind.one, description=f"Show {kind.one}.")
    shown.add_argument("name", metavar="NAME", help=kind.name)
    shown.set_defaults(command=lambda options: _show(kind, options))
    for command in (listed, shown):
        command.add_argument("--json", action="store_true", help="print JSON")


def _list(kind: Kind, options: argparse.Namespace) -> int:
    found = {name: kind.find(name) for name in kind.names()}
    render.show_json(found) if options.json else render.show(kind.table([*found.values()]))
    return 0


def _show(kind: Kind, options: argparse.Namespace) -> int:
    found = kind.find(options.name)
    render.show_json(found) if options.json else render.show(kind.page(found))
    return 0
