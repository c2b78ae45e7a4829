"""``strategist completion``: shell completion of commands, options and files."""

import argparse
from collections.abc import Iterator

from strategist.cli import render
from strategist.cli.main import COMMANDS, whole_parser
from strategist.cli.parser import Parser, path_kind
from strategist.errors import not_among

SHELLS = ("bash", "zsh", "tcsh")


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("shell", metavar="SHELL", help=f'{", ".join(SHELLS)}; e.g. eval "$(strategist completion bash)"')
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the completion script of the shell."""
    import shtab

    if options.shell not in SHELLS:
        raise not_among(f"completion {options.shell}", options.shell, SHELLS, "is for no shell that is known")
    parser = whole_parser(COMMANDS)
    for action in _actions(parser):
        if kind := path_kind(action):
            action.complete = shtab.FILE if kind == "file" else shtab.DIRECTORY  # type: ignore[attr-defined]
    render.line(shtab.complete(parser, options.shell).rstrip("\n"))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of the commands below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
        else:
            yield action
